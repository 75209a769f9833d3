package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/valyala/fasthttp"
)

// statusTimeout bounds each question to the daemon.
const statusTimeout = 5 * time.Second

func statusCommand() *cobra.Command {
	var url string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what a running daemon serves and has done",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := askStatus(url)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), s)
			}
			return s.writeText(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:8000", "the daemon")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// status is what a daemon says of itself.
type status struct {
	Live   bool          `json:"live"`
	Ready  bool          `json:"ready"`
	Models []modelStatus `json:"models"`
}

// modelStatus is the statistics of one service, in the protocol's names.
type modelStatus struct {
	Name           string `json:"name"`
	InferenceCount uint64 `json:"inference_count"`
	ExecutionCount uint64 `json:"execution_count"`
	Stats          struct {
		Success total `json:"success"`
		Fail    total `json:"fail"`
		Queue   total `json:"queue"`
		Infer   total `json:"compute_infer"`
	} `json:"inference_stats"`
}

type total struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

func (t total) mean() time.Duration {
	if t.Count == 0 {
		return 0
	}
	return time.Duration(t.NS / t.Count).Round(time.Microsecond)
}

func askStatus(url string) (s status, err error) {
	get := func(path string) (int, []byte, error) {
		return fasthttp.GetTimeout(nil, url+path, statusTimeout)
	}
	code, _, err := get("/v2/health/live")
	if err != nil {
		return s, fmt.Errorf("no daemon answers at %s: %w; start one with overlapd serve", url, err)
	}
	s.Live = code == fasthttp.StatusOK
	if code, _, err = get("/v2/health/ready"); err != nil {
		return s, err
	}
	s.Ready = code == fasthttp.StatusOK
	_, body, err := get("/v2/models/stats")
	if err != nil {
		return s, err
	}
	var stats struct {
		Models []modelStatus `json:"model_stats"`
	}
	err = json.Unmarshal(body, &stats)
	s.Models = stats.Models
	return s, err
}

func (s status) writeText(w io.Writer) error {
	fmt.Fprintf(w, "live: %t  ready: %t\n\n", s.Live, s.Ready)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tANSWERED\tFAILED OR DROPPED\tBATCHES\tMEAN QUEUE\tMEAN RUN")
	for _, m := range s.Models {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%v\t%v\n", m.Name, m.Stats.Success.Count, m.Stats.Fail.Count,
			m.ExecutionCount, m.Stats.Queue.mean(), m.Stats.Infer.mean())
	}
	return t.Flush()
}
