// image makes the container image of overlapd without a container engine, and lists what is
// in it:
//
//	image CONTAINERFILE TREE OUT EPOCH REVISION
//
// The image is what the last stage of the Containerfile describes, with the folders of TREE,
// which scripts/image-tree has made, as its layers. OUT becomes an OCI layout, in which EPOCH
// is the time, in seconds, and TREE gets sbom.cdx.json (CycloneDX) and packages.txt. The same
// tree makes the same bytes. With other arguments it does its part of scripts/check-image.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"golang.org/x/sys/unix"
)

func main() {
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[0] == "unpack":
		unpack(args[1], args[2])
	case len(args) > 4 && args[0] == "contain":
		contain(args[1], must(strconv.Atoi(args[2])), must(strconv.Atoi(args[3])), args[4:])
	case len(args) == 1 && args[0] == "ask":
		ask()
	case len(args) == 5:
		build(args[0], args[1], args[2], args[3], args[4])
	default:
		die("usage: image CONTAINERFILE TREE OUT EPOCH REVISION")
	}
}

func die(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "image: "+format+"\n", args...)
	os.Exit(1)
}

func must0(err error) { must(0, err) }

func must[T any](value T, err error) T {
	if err != nil {
		die("%v", err)
	}
	return value
}

func build(containerfile, tree, out, epoch, revision string) {
	at := v1.Time{Time: time.Unix(must(strconv.ParseInt(epoch, 10, 64)), 0).UTC()}
	version := strings.TrimSpace(string(must(os.ReadFile(tree + "/version"))))
	config, sources := readContainerfile(containerfile)
	config.Labels["org.opencontainers.image.version"], config.Labels["org.opencontainers.image.revision"] = version, revision
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image = must(mutate.ConfigFile(image, &v1.ConfigFile{Architecture: runtime.GOARCH, OS: "linux", Created: at, Config: config, RootFS: v1.RootFS{Type: "layers"}}))
	var packed, unpacked int64
	for _, source := range sources {
		name := filepath.Base(source)
		file := must(os.Create(filepath.Join(tree, name+".tar")))
		defer os.Remove(file.Name())
		archive := tar.NewWriter(file)
		must0(archive.AddFS(os.DirFS(filepath.Join(tree, name))))
		must0(archive.Close())
		layer := must(tarball.LayerFromFile(file.Name(), tarball.WithMediaType(types.OCILayer)))
		image = must(mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: at, CreatedBy: "COPY " + name + " /"}}))
		size, whole := must(layer.Size()), must(file.Stat()).Size()
		packed, unpacked = packed+size, unpacked+whole
		fmt.Printf("layer        %-8s %7.1f MB, unpacked %7.1f MB\n", name, float64(size)/1e6, float64(whole)/1e6)
	}
	must0(os.RemoveAll(out))
	must0(must(layout.Write(out, empty.Index)).AppendImage(image, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})))
	fmt.Printf("size         %16.1f MB, unpacked %7.1f MB\n", float64(packed)/1e6, float64(unpacked)/1e6)
	fmt.Printf("digest       %v\nuser         %s\nentry point  %v\n", must(image.Digest()), config.User, config.Entrypoint)
	list(tree, version, at.Time)
}

// readContainerfile returns what the last stage makes of an image, and the folders that are
// its layers. A warning of BuildKit's is a fault, and so is what only an engine could do.
func readContainerfile(path string) (config v1.Config, sources []string) {
	warn := func(rule, _, _, message string, at []parser.Range) { die("%s: %v %s: %s", path, at, rule, message) }
	stages, _, err := instructions.Parse(must(parser.Parse(must(os.Open(path)))).AST, linter.New(&linter.Config{Warn: warn}))
	must0(err)
	config.Labels, config.ExposedPorts = map[string]string{}, map[string]struct{}{}
	for _, command := range stages[len(stages)-1].Commands {
		switch c := command.(type) {
		case *instructions.LabelCommand:
			for _, label := range c.Labels {
				config.Labels[label.Key] = strings.Trim(label.Value, `"`)
			}
		case *instructions.EnvCommand:
			for _, variable := range c.Env {
				config.Env = append(config.Env, variable.String())
			}
		case *instructions.UserCommand:
			config.User = c.User
		case *instructions.ExposeCommand:
			for _, port := range c.Ports {
				config.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case *instructions.EntrypointCommand:
			if config.Entrypoint = c.CmdLine; c.PrependShell {
				die("%s: %s: there is no shell in the image", path, c)
			}
		case *instructions.CopyCommand:
			sources = append(sources, c.SourcePaths...)
		default:
			die("%s: %s cannot be done without an engine", path, c.Name())
		}
	}
	return config, sources
}

// unpack checks all hashes and sizes of an image, unpacks it, and prints its user, its entry
// point and its environment, a line each.
func unpack(out, root string) {
	index := must(must(layout.FromPath(out)).ImageIndex())
	image := must(index.Image(must(index.IndexManifest()).Manifests[0].Digest))
	must0(validate.Image(image))
	unpack := exec.Command("tar", "-xp", "--numeric-owner", "-C", root)
	unpack.Stdin, unpack.Stderr = mutate.Extract(image), os.Stderr
	must0(unpack.Run())
	config := must(image.ConfigFile()).Config
	fmt.Println(config.User + "\n" + strings.Join(config.Entrypoint, " ") + "\n" + strings.Join(config.Env, "\n"))
}

// contain becomes a command in a root folder, as a user of the group 0 and of another,
// without a capability.
func contain(root string, uid, group int, command []string) {
	runtime.LockOSThread() // capabilities are those of a thread
	if os.Getpid() == 1 {
		must0(unix.Mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	}
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) == nil; c++ {
	}
	must0(errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), unix.Chroot(root), os.Chdir("/"),
		syscall.Setgroups([]int{group}), syscall.Setresgid(0, 0, 0), syscall.Setresuid(uid, uid, uid)))
	must0(syscall.Exec(must(exec.LookPath(command[0])), command, os.Environ()))
}

// ask sends a query to the service mlp over HTTP and gRPC, and dies unless both answer alike.
func ask() {
	input := slices.Repeat([]float32{0.5}, 16)
	question := fmt.Sprintf(`{"inputs":[{"name":"input","datatype":"FP32","shape":[1,16],"data":%s}]}`, must(json.Marshal(input)))
	var answer struct{ Outputs []struct{ Data []float32 } }
	must0(json.NewDecoder(must(http.Post("http://127.0.0.1:8000/v2/models/mlp/infer", "application/json", strings.NewReader(question))).Body).Decode(&answer))
	if len(answer.Outputs) != 1 || len(answer.Outputs[0].Data) != 10 {
		die("over HTTP it answers %v", answer)
	}
	// The fields of inference.ModelInferRequest, each shorter than 128 bytes, over HTTP/2.
	field := func(number byte, value string) string { return string([]byte{number<<3 | 2, byte(len(value))}) + value }
	raw := func(order binary.ByteOrder, value any) string { return string(must(binary.Append(nil, order, value))) }
	message := field(1, "mlp") + field(5, field(1, "input")+field(2, "FP32")+field(3, "\x01\x10")) + field(7, raw(binary.LittleEndian, input))
	request := must(http.NewRequest(http.MethodPost, "http://127.0.0.1:8001/inference.GRPCInferenceService/ModelInfer",
		strings.NewReader("\x00"+raw(binary.BigEndian, uint32(len(message)))+message)))
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	reply := must(io.ReadAll(must((&http.Client{Transport: &http.Transport{Protocols: &protocols}}).Do(request)).Body))
	if !bytes.Contains(reply, []byte(raw(binary.LittleEndian, answer.Outputs[0].Data))) {
		die("over HTTP it answers %v, and over gRPC %q", answer, reply)
	}
	fmt.Println("over HTTP and gRPC it answers", answer.Outputs[0].Data)
}
