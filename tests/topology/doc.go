// Package topology runs the platform as its real processes, one per service,
// over a real PostgreSQL, and takes parts of it away.
package topology
