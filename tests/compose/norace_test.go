//go:build !race

package compose

const raced = false
