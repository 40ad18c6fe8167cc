// Package admissiontest has a slow, plainly right model of libs/admission: one
// account, one goroutine, big integers, no cleverness. Tests run the same
// history through both and compare every answer.
//
// An Oracle is not safe for concurrent use. It holds the state that a history
// needs and nothing else; it never refuses for contention.
package admissiontest
