// Runs members of consumer groups of three Go clients for tests in another process.
//
// Each line of stdin is a call in JSON, with the id of a member ("on") unless it starts one. Each is answered by one
// line on stdout: {"value": ...} or {"error": ...}. Bytes are in hex. The process ends with its stdin.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

const (
	pollWait      = 50 * time.Millisecond
	fetchWait     = 100 * time.Millisecond
	heartbeatWait = 100 * time.Millisecond
	retryWait     = 20 * time.Millisecond
	callTimeout   = 30 * time.Second
)

// settings of a member. With a transactional id, it transforms records; see transformer.
type settings struct {
	Servers          []string `json:"servers"`
	Group            string   `json:"group"`
	ClientID         string   `json:"client_id"`
	InstanceID       string   `json:"instance_id"`
	SessionTimeoutMs int      `json:"session_timeout_ms"`
	TransactionalID  string   `json:"transactional_id"`
	Topic            string   `json:"topic"`
	Output           string   `json:"output"`
}

func (s settings) sessionTimeout() time.Duration {
	return time.Duration(s.SessionTimeoutMs) * time.Millisecond
}

type record struct {
	Value     *string    `json:"value"`
	Key       *string    `json:"key"`
	Headers   [][]string `json:"headers"`
	Timestamp *int64     `json:"timestamp_ms"`
	Partition *int32     `json:"partition"`
}

type place struct {
	topic     string
	partition int32
}

// A member reads a topic in a group.
type member interface {
	// poll returns new records, after a short wait at most.
	poll() ([]record, error)
	// assignment returns the assigned partitions in any order.
	assignment() ([]place, error)
	// commit commits the offsets after all records that poll returned.
	commit() error
	close() error
}

// A transformer is a member that produces what it reads, and commits its offsets, in transactions.
type transformer interface {
	member
	// transform reads records, and produces them to the output in one transaction, if there are any. After an aborted
	// transaction it reads them again. Returns the records, unless the transaction was to be committed and was not.
	transform(commit bool) ([]record, error)
	// crash ends without ending the transaction.
	crash() error
}

type client struct {
	start     func(settings) (member, error)
	transform func(settings) (transformer, error)
	produce   func(servers []string, topic string, records []record) error
}

var clients = map[string]client{
	"franz-go": {startFranz, transformWithFranz, produceWithFranz},
	"sarama":   {startSarama, transformWithSarama, produceWithSarama},
	"kafka-go": {start: startKafkaGo, produce: produceWithKafkaGo},
}

type call struct {
	Call    string   `json:"call"`
	On      int      `json:"on"`
	Client  string   `json:"client"`
	Commits bool     `json:"commits"`
	Records []record `json:"records"`
	settings
}

var (
	members = map[int]member{}
	last    int
)

func answer(made call) (any, error) {
	switch made.Call {
	case "start":
		started, err := clients[made.Client].start(made.settings)
		return add(started, err)
	case "start_transformer":
		started, err := clients[made.Client].transform(made.settings)
		return add(started, err)
	case "produce":
		return nil, clients[made.Client].produce(made.Servers, made.Topic, made.Records)
	}
	on, found := members[made.On]
	if !found {
		return nil, fmt.Errorf("no member has the id %d", made.On)
	}
	switch made.Call {
	case "poll":
		return on.poll()
	case "assignment":
		places, err := on.assignment()
		found := [][]any{}
		for _, each := range places {
			found = append(found, []any{each.topic, each.partition})
		}
		return found, err
	case "commit":
		return nil, on.commit()
	case "transform":
		return on.(transformer).transform(made.Commits)
	case "crash":
		delete(members, made.On)
		return nil, on.(transformer).crash()
	case "close":
		delete(members, made.On)
		return nil, on.close()
	}
	return nil, fmt.Errorf("unknown call: %s", made.Call)
}

func add(started member, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	last++
	members[last] = started
	return last, nil
}

func main() {
	calls := json.NewDecoder(bufio.NewReader(os.Stdin))
	answers := json.NewEncoder(os.Stdout)
	for {
		var made call
		if err := calls.Decode(&made); err != nil {
			return
		}
		value, err := answer(made)
		if err != nil {
			answers.Encode(map[string]any{"error": err.Error()})
		} else {
			answers.Encode(map[string]any{"value": value})
		}
	}
}

func toHex(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := hex.EncodeToString(bytes)
	return &text
}

func fromHex(text *string) []byte {
	if text == nil {
		return nil
	}
	bytes, err := hex.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	return bytes
}
