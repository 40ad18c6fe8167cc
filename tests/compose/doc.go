// Package compose runs deploy/compose's check where a Docker engine is up: the
// images are built, the six services come up in containers, the client checks
// them, and everything but the images is removed. It takes half a minute, more
// beside other tests, and two minutes more the first time where no registry
// answers, since PostgreSQL's image is made then. Without an engine it says so.
package compose
