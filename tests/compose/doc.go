// Package compose runs deploy/compose's check where a Docker engine is up.
package compose
