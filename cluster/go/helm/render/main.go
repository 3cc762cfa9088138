// Renders a chart by Helm 3 and Helm 4 as `helm template` does, as often as it is asked: starting helm takes longer than rendering.
// One JSON object a line, a request, on stdin; one, its answer, on stdout. The argument is the chart's folder.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	action3 "helm.sh/helm/v3/pkg/action"
	loader3 "helm.sh/helm/v3/pkg/chart/loader"
	values3 "helm.sh/helm/v3/pkg/cli/values"
	action4 "helm.sh/helm/v4/pkg/action"
	loader4 "helm.sh/helm/v4/pkg/chart/loader"
	values4 "helm.sh/helm/v4/pkg/cli/values"
	release4 "helm.sh/helm/v4/pkg/release/v1"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

type request struct {
	Helm      int    `json:"helm"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// A values file's text, not what it means: reading it is a part of what Helm does.
	Values string `json:"values"`
}

type answer struct {
	Manifest string `json:"manifest"`
	Notes    string `json:"notes"`
	// The manifest as Kubernetes' own tools read it, which is not how every YAML library does.
	Objects []object `json:"objects"`
	Error   string   `json:"error"`
}

type object struct {
	Source string          `json:"source"`
	Object json.RawMessage `json:"object"`
}

func main() {
	// Helm 4 tells of every failure here, too.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	chart := os.Args[1]
	asked := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for {
		line, err := asked.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var one request
		if err == nil {
			err = json.Unmarshal(line, &one)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "render:", err)
			os.Exit(2)
		}
		if answers.Encode(render(chart, one)) != nil {
			os.Exit(2)
		}
	}
}

func render(chart string, one request) (result answer) {
	defer func() {
		if panicked := recover(); panicked != nil {
			result.Error = fmt.Sprintf("panic: %v", panicked)
		}
	}()
	file, err := valuesFile(one.Values)
	if err == nil {
		defer os.Remove(file)
		if one.Helm == 3 {
			result.Manifest, result.Notes, err = helm3(chart, one, file)
		} else {
			result.Manifest, result.Notes, err = helm4(chart, one, file)
		}
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	result.Manifest = strings.TrimSpace(result.Manifest) + "\n"
	if result.Objects, err = objects(result.Manifest); err != nil {
		return answer{Error: fmt.Sprintf("the manifest is no YAML: %v", err)}
	}
	return result
}

// objects is strict: a key that stands twice is an error.
func objects(manifest string) ([]object, error) {
	found := []object{}
	documents := kubeyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for {
		text, err := documents.Read()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		read, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return nil, err
		}
		if string(read) != "null" {
			first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
			found = append(found, object{strings.TrimPrefix(first, "# Source: "), read})
		}
	}
}

func valuesFile(text string) (string, error) {
	file, err := os.CreateTemp("", "values-*.yaml")
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = file.WriteString(text)
	return file.Name(), err
}

// helm3 does what helm.sh/helm/v3/cmd/helm/template.go does.
func helm3(chart string, one request, file string) (string, string, error) {
	values, err := (&values3.Options{ValueFiles: []string{file}}).MergeValues(nil)
	if err != nil {
		return "", "", err
	}
	loaded, err := loader3.Load(chart)
	if err != nil {
		return "", "", err
	}
	install := action3.NewInstall(&action3.Configuration{Log: func(string, ...any) {}})
	install.DryRun, install.ClientOnly, install.Replace = true, true, true
	install.ReleaseName, install.Namespace = one.Name, one.Namespace
	release, err := install.Run(loaded, values)
	if err != nil {
		return "", "", err
	}
	return release.Manifest, release.Info.Notes, nil
}

// helm4 does what helm.sh/helm/v4/pkg/cmd/template.go does.
func helm4(chart string, one request, file string) (string, string, error) {
	values, err := (&values4.Options{ValueFiles: []string{file}}).MergeValues(nil)
	if err != nil {
		return "", "", err
	}
	loaded, err := loader4.Load(chart)
	if err != nil {
		return "", "", err
	}
	install := action4.NewInstall(action4.NewConfiguration())
	install.DryRunStrategy, install.Replace = action4.DryRunClient, true
	install.ReleaseName, install.Namespace = one.Name, one.Namespace
	made, err := install.Run(loaded, values)
	if err != nil {
		return "", "", err
	}
	release := made.(*release4.Release)
	return release.Manifest, release.Info.Notes, nil
}
