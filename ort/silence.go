package ort

import "os"

// noTelemetry is what keeps ONNX Runtime from collecting what it is used for.
// Since 1.30 the library does that on Linux, too: every process opens a database
// in the user's cache folder and a log in the folder for temporary files, and
// sends what is in them to Microsoft when it can. DisableTelemetryEvents only
// ends that after the files are there.
const noTelemetry = "ORT_DISABLE_TELEMETRY"

// silence is called before the library is loaded. It sets the variable for C as
// well, and for processes that are started later.
func silence() error { return os.Setenv(noTelemetry, "1") }
