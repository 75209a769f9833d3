package main

// manualSections are what the manual page says besides the commands' help.
var manualSections = []struct {
	title, text string
	entries     []struct{ name, text string }
}{
	{
		title: "FILES",
		entries: []struct{ name, text string }{
			{"/etc/overlapd/INSTANCE.toml", "The configuration of overlapd@INSTANCE.service. What its keys mean is in /usr/share/doc/overlapd/configuration.md."},
			{"/etc/default/overlapd", "Environment variables and further options of every instance."},
			{"/var/lib/overlapd/INSTANCE", "The state: what was measured, the predictors, the decision log."},
			{"/var/cache/overlapd/INSTANCE", "Models that were built or cut, which are built again if they are missing."},
			{"/run/overlapd/INSTANCE", "Sockets, and those of MPS, while it runs."},
			{"/run/overlapd/INSTANCE/admin.sock", "The admin socket, for root, the user overlapd and the members of admin_group."},
			{"/usr/lib/overlapd/libonnxruntime.so.1", "ONNX Runtime, for overlapd alone."},
		},
	},
	{
		title: "ENVIRONMENT",
		entries: []struct{ name, text string }{
			{"OVERLAPD_ORT", "The ONNX Runtime to load, before any other place."},
			{"OVERLAPD_TOKEN_FILE", "A file whose first token status, top, trace and bench serve bring, unless --token-file names another."},
			{"NO_COLOR", "If it is not empty, top shows no colours."},
			{"STATE_DIRECTORY", "The state folder, unless the configuration names one. systemd sets it. Else it is overlapd below XDG_STATE_HOME or ~/.local/state."},
			{"CACHE_DIRECTORY", "The folder of what can be built again. systemd sets it. Else it is overlapd below XDG_CACHE_HOME or ~/.cache; a daemon takes its state folder instead."},
			{"RUNTIME_DIRECTORY", "The folder of sockets. systemd sets it. Else the admin socket is in overlapd below XDG_RUNTIME_DIR, or in the state folder."},
			{"NOTIFY_SOCKET, WATCHDOG_USEC", "Where the daemon tells how it does, and how often systemd wants to hear that it lives."},
		},
	},
	{
		title: "SIGNALS",
		entries: []struct{ name, text string }{
			{"SIGTERM, SIGINT", "Accept nothing more, answer what was accepted, and end. A second one ends at once."},
			{"SIGHUP", "Read the configuration again, as overlapd reload has the daemon do. The log says what became of it. If it comes of a terminal that is gone, the daemon ends as with SIGTERM."},
		},
	},
	{
		title: "EXIT STATUS",
		entries: []struct{ name, text string }{
			{"0", "All went well."},
			{"1", "Something failed; standard error says what."},
			{"78", "The configuration is wrong. systemd does not start the daemon again then. Of overlapd reload: nothing was changed."},
		},
	},
	{
		title: "SEE ALSO",
		text:  "systemctl(1), journalctl(1), nvidia-smi(1), /usr/share/doc/overlapd/install.md",
	},
}
