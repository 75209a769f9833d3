// Package access decides who may ask the daemon, and over what: an [Access] holds
// the bearer tokens that requests must carry, and the certificates of TLS. Both
// come from files that are followed: a changed file is taken into use within a
// second of the next request or handshake, or by [Access.Reload], and one that
// is wrong leaves what was there before.
//
// Tokens are kept as hashes and compared in constant time. No error, warning or
// message of this package holds a token or a key. The daemon asks it for each request
// and connection; commands read their own credentials by [ReadCredentials].
package access
