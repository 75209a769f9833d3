// Package config defines the configuration of a daemon: the keys of its file with their
// defaults and bounds, and which of them a running daemon can change.
//
// [Load] reads a file and reports everything that is wrong with it at once,
// with lines. [Default] is the configuration of an empty file, and
// [Config.TOML] prints one that reads back the same. [Diff] compares two for a
// reload. [Explain] says what a key means. Commands read configurations, and the
// daemon serves by one; nothing below the daemon knows this package.
package config
