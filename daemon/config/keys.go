package config

import "time"

// keys visits the keys of a table: to read them from a file, or to print
// them. That there is one list for both is why what `overlapd check` prints
// can be read back.
type keys interface {
	text(key string, v *string)
	texts(key string, v *[]string)
	number(key string, v *int)
	numbers(key string, v *[]int)
	flag(key string, v *bool)
	duration(key string, v *time.Duration)
	bytes(key string, v *int64)
	ratio(key string, v *float64)
	table(key string, visit func(keys))

	// tables visits an array of tables, of which there are n. Reading one, it
	// first makes room, which returns for how many there is.
	tables(key string, n int, room func(n int) int, visit func(i int, k keys))
}

func (c *Config) keys(k keys) {
	k.text("listen", &c.Listen)
	k.text("grpc_listen", &c.GRPCListen)
	k.text("state_dir", &c.StateDir)
	k.text("device", &c.Device)
	k.text("gpu", &c.GPU)
	k.text("device_profile", &c.DeviceProfile)
	k.number("device_seed", &c.DeviceSeed)
	k.text("policy", &c.Policy)
	k.number("ways", &c.Ways)
	k.duration("drain_timeout", &c.DrainTimeout)
	k.text("log_level", &c.LogLevel)
	k.text("log_format", &c.LogFormat)
	k.flag("metrics", &c.Metrics)
	c.Admin.keys(k)
	k.table("limits", c.Limits.keys)
	k.table("tls", c.TLS.keys)
	k.table("access", c.Access.keys)
	k.table("worker", c.Worker.keys)
	k.table("profile", c.Profile.keys)
	k.table("predictor", c.Predictor.keys)
	k.table("decisions", c.Decisions.keys)
	k.table("tracing", c.Tracing.keys)
	k.table("cuda", c.CUDA.keys)
	k.table("mps", c.MPS.keys)
	k.table("mig", c.MIG.keys)
}

func (p *Profile) keys(k keys) {
	k.flag("on_start", &p.OnStart)
	k.duration("time", &p.Time)
	k.number("groups", &p.Groups)
	k.number("repeats", &p.Repeats)
	k.number("spans", &p.Spans)
	k.number("seed", &p.Seed)
}

func (p *Predictor) keys(k keys) {
	k.text("file", &p.File)
	k.flag("train", &p.Train)
}

func (d *Decisions) keys(k keys) {
	k.flag("log", &d.Log)
	k.bytes("file_bytes", &d.FileBytes)
	k.number("files", &d.Files)
}

func (l *Limits) keys(k keys) {
	k.bytes("request_bytes", &l.RequestBytes)
	k.bytes("memory_bytes", &l.MemoryBytes)
	k.bytes("header_bytes", &l.HeaderBytes)
	k.number("connections", &l.Connections)
	k.duration("read_timeout", &l.ReadTimeout)
	k.duration("write_timeout", &l.WriteTimeout)
	k.duration("idle_timeout", &l.IdleTimeout)
	k.texts("hosts", &l.Hosts)
	k.bytes("compress_bytes", &l.CompressBytes)
}

func (w *Worker) keys(k keys) {
	k.number("threads", &w.Threads)
	k.flag("spin", &w.Spin)
	k.duration("poll", &w.Poll)
	k.duration("span_timeout", &w.SpanTimeout)
	k.duration("load_timeout", &w.LoadTimeout)
	k.number("restart_limit", &w.RestartLimit)
	k.duration("backoff_min", &w.BackoffMin)
	k.duration("backoff_max", &w.BackoffMax)
	k.bytes("input_bytes", &w.InputBytes)
	k.bytes("output_bytes", &w.OutputBytes)
	k.bytes("intermediate_bytes", &w.IntermediateBytes)
}

func (s *Service) keys(k keys) {
	k.text("name", &s.Name)
	k.text("model", &s.Model)
	k.duration("target", &s.Target)
	k.number("queue_limit", &s.QueueLimit)
	k.number("max_batch", &s.MaxBatch)
	k.number("max_query_batch", &s.MaxQueryBatch)
	k.number("threads", &s.Threads)
	k.number("cut", &s.Cut)
	k.flag("best_effort", &s.BestEffort)
	k.numbers("sizes", &s.Sizes)
	k.numbers("seq_lens", &s.SeqLens)
	s.MPS.keys(k)
}
