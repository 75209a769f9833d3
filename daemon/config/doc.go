// Package config is the configuration of a daemon: what its file may say, what
// holds where it says nothing, and what of it a running daemon can take.
//
// [Load] reads a file and reports everything that is wrong with it at once,
// with lines. [Default] is the configuration of an empty file, and
// [Config.TOML] prints one that reads back the same. [Diff] compares two for a
// reload. Commands read configurations, and the daemon serves by one; nothing
// below the daemon knows this package.
package config
