// Package perfetto writes timelines in the Chrome trace event format, which
// Perfetto (ui.perfetto.dev) and Chrome show. A [Writer] writes [Event]s one by
// one; what they mean is the business of who writes them.
package perfetto
