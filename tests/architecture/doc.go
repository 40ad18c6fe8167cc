// Package architecture tests what the tree promises of itself: which module may
// import what, that every package says what it is, and what no file may hold.
// It reads the source; it builds and runs nothing.
package architecture
