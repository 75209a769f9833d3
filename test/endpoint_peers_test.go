package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

// peerVariable names the program that this one is instead of the tests: one that
// BenchmarkEndpoint compares the daemon with, and its arguments.
const peerVariable = "OVERLAPD_TEST_PEER"

// peer is "echo", a server that answers the inputs of a query from memory; "pipe", one
// that has a child process send them back through a pipe, which is the least that a
// process for each service takes; "child", that process; or "engine", see [bareEngine].
func peer(args []string) error {
	switch args[0] {
	case "child":
		return sendBack()
	case "engine":
		return bareEngine(args[1:])
	case "pipe":
		through, err := pipe()
		if err != nil {
			return err
		}
		return serveEcho(through)
	}
	return serveEcho(func([]byte) error { return nil })
}

// serveEcho serves tiny_identity over both protocols until standard input ends. Through is
// called with the tensor of each query.
func serveEcho(through func(tensor []byte) error) error {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	rpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(web.Addr(), rpc.Addr())
	ended := make(chan error, 3)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	go func() {
		ended <- fasthttp.Serve(web, func(ctx *fasthttp.RequestCtx) { echoHTTP(ctx, through) })
	}()
	g := grpc.NewServer()
	inference.RegisterGRPCInferenceServiceServer(g, echoRPC{through: through})
	go func() { ended <- g.Serve(rpc) }()
	return <-ended
}

func echoHTTP(ctx *fasthttp.RequestCtx, through func([]byte) error) {
	const about = `{"name":"echo","version":"1","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[-1,-1]}]}`
	if ctx.IsGet() {
		ctx.SetBodyString(about)
		return
	}
	head, err := strconv.Atoi(string(ctx.Request.Header.Peek("Inference-Header-Content-Length")))
	body := ctx.PostBody()
	if err == nil {
		err = through(body[head:])
	}
	if err != nil {
		ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
		return
	}
	text := fmt.Appendf(nil, `{"model_name":"identity","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[1,4],"parameters":{"binary_data_size":%d}}]}`, len(body)-head)
	ctx.Response.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(text)))
	ctx.SetBody(append(text, body[head:]...))
}

type echoRPC struct {
	inference.UnimplementedGRPCInferenceServiceServer
	through func([]byte) error
}

func (e echoRPC) ModelInfer(_ context.Context, r *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	in := r.Inputs[0]
	return &inference.ModelInferResponse{
		ModelName: r.ModelName, RawOutputContents: r.RawInputContents,
		Outputs: []*inference.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: in.Datatype, Shape: in.Shape}},
	}, e.through(r.RawInputContents[0])
}

// pipe returns what sends a tensor to a child process and back, one at a time, as a worker
// runs one query at a time.
func pipe() (through func([]byte) error, err error) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), peerVariable+"=child")
	to, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	from, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var turn sync.Mutex
	return func(tensor []byte) error {
		turn.Lock()
		defer turn.Unlock()
		if _, err := to.Write(tensor); err != nil {
			return err
		}
		_, err := io.ReadFull(from, tensor)
		return err
	}, child.Start()
}

// sendBack reads and writes with calls that block, as a worker does.
func sendBack() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(0, buf)
		if err != nil || n == 0 {
			return err
		}
		if _, err := unix.Write(1, buf[:n]); err != nil {
			return err
		}
	}
}

// bareEngine runs a model of one input, whole, in this process for as many callers as there
// would be connections, one at a time and in their order, and prints what that cost. Its
// arguments are the model's file, threads, callers and seconds.
func bareEngine(args []string) error {
	var threads, callers int
	var seconds float64
	if _, err := fmt.Sscan(strings.Join(args[1:], " "), &threads, &callers, &seconds); err != nil {
		return err
	}
	lib, err := ort.Load()
	if err != nil {
		return err
	}
	env, err := lib.NewEnv(ort.EnvOptions{IntraThreads: threads})
	if err != nil {
		return err
	}
	session, err := env.NewSessionFromFile(args[0], ort.SessionOptions{Optimize: true})
	if err != nil {
		return err
	}
	program, err := ort.NewProgram([]*ort.Session{session})
	if err != nil {
		return err
	}
	data, err := unix.Mmap(-1, 0, 3*224*224*4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	image, err := env.TensorOn(data, models.Float32, []int64{1, 3, 224, 224})
	if err != nil {
		return err
	}
	program.SetInput(0, 0, image)
	turns := make(chan struct{}, 1) // whoever waits longest is next
	ask := func() error {
		turns <- struct{}{}
		defer func() { <-turns }()
		_, err := program.Run(0, 1, nil)
		return err
	}
	for range 5 {
		if err := ask(); err != nil {
			return err
		}
	}
	before, failed := usageOf([]int{os.Getpid()}), errors.Join()
	took, elapsed := closedLoop(callers, time.Duration(seconds*float64(time.Second)), func(int) {
		if err := ask(); err != nil {
			failed = err
		}
	})
	return errors.Join(failed, json.NewEncoder(os.Stdout).Encode(costOf(took, elapsed, usageOf([]int{os.Getpid()}).since(before))))
}
