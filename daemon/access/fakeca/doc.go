// Package fakeca is a certificate authority for tests: a [CA] writes pairs of
// certificate and key for servers and clients into files.
package fakeca
