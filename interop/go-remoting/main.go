// Obeys the lines of ../README.md with RocketMQ's Go client of the remoting protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	mq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type message struct {
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Level      int               `json:"level"`
}

type order struct {
	ID        int            `json:"id"`
	Op        string         `json:"op"`
	Client    string         `json:"client"`
	Endpoint  string         `json:"endpoint"`
	Group     string         `json:"group"`
	Topic     string         `json:"topic"`
	Filter    string         `json:"filter"`
	SQL       string         `json:"sql"`
	Fail      map[string]int `json:"fail"`
	Attempts  int32          `json:"attempts"`
	Model     string         `json:"model"`
	Orderly   bool           `json:"orderly"`
	Message   message        `json:"message"`
	AccessKey string         `json:"access_key"`
	SecretKey string         `json:"secret_key"`
	Namespace string         `json:"namespace"`
}

type stoppable interface{ Shutdown() error }

type fields map[string]any

var (
	clients   sync.Map
	writing   sync.Mutex
	instances atomic.Int64
)

func write(value fields) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	writing.Lock()
	defer writing.Unlock()
	fmt.Println(string(line))
}

func shown(found *primitive.MessageExt) fields {
	return fields{
		"id": found.MsgId, "topic": found.Topic, "body": string(found.Body), "tag": found.GetTags(),
		"keys": strings.Fields(found.GetKeys()), "properties": found.GetProperties(),
		"attempt": found.ReconsumeTimes + 1, "queue": found.Queue.QueueId, "queue_offset": found.QueueOffset,
	}
}

func instance() string {
	return fmt.Sprintf("i%d-%d", os.Getpid(), instances.Add(1))
}

func openProducer(given order) (fields, error) {
	group := given.Group
	if group == "" {
		group = "producers-" + given.Client
	}
	options := []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{given.Endpoint}), producer.WithGroupName(group),
		producer.WithInstanceName(instance()), producer.WithNamespace(given.Namespace),
	}
	if given.AccessKey != "" {
		keys := primitive.Credentials{AccessKey: given.AccessKey, SecretKey: given.SecretKey}
		options = append(options, producer.WithCredentials(keys))
	}
	made, err := mq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	clients.Store(given.Client, made)
	return fields{}, made.Start()
}

func openPush(given order) (fields, error) {
	options := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{given.Endpoint}), consumer.WithGroupName(given.Group),
		consumer.WithInstance(instance()), consumer.WithNamespace(given.Namespace),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(given.Orderly),
	}
	if given.Model == "broadcast" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if given.Attempts != 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(given.Attempts-1))
	}
	if given.AccessKey != "" {
		keys := primitive.Credentials{AccessKey: given.AccessKey, SecretKey: given.SecretKey}
		options = append(options, consumer.WithCredentials(keys))
	}
	made, err := mq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if given.SQL != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: given.SQL}
	} else if given.Filter != "" {
		selector.Expression = given.Filter
	}
	consume := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, found := range batch {
			write(fields{"event": "message", "client": given.Client, "message": shown(found)})
			if int(found.ReconsumeTimes) < given.Fail[string(found.Body)] {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := made.Subscribe(given.Topic, selector, consume); err != nil {
		return nil, err
	}
	clients.Store(given.Client, made)
	return fields{}, made.Start()
}

func send(given order) (fields, error) {
	wanted := given.Message
	made := primitive.NewMessage(wanted.Topic, []byte(wanted.Body))
	made.WithProperties(wanted.Properties)
	if wanted.Tag != "" {
		made.WithTag(wanted.Tag)
	}
	if len(wanted.Keys) > 0 {
		made.WithKeys(wanted.Keys)
	}
	if wanted.Level != 0 {
		made.WithDelayTimeLevel(wanted.Level)
	}
	found, _ := clients.Load(given.Client)
	sent, err := found.(mq.Producer).SendSync(context.Background(), made)
	if err != nil {
		return nil, err
	}
	return fields{"id": sent.MsgID, "status": sent.Status, "queue_offset": sent.QueueOffset}, nil
}

func carryOut(given order) (fields, error) {
	switch given.Op {
	case "open_producer":
		return openProducer(given)
	case "open_push":
		return openPush(given)
	case "send":
		return send(given)
	case "close":
		found, _ := clients.LoadAndDelete(given.Client)
		return fields{}, found.(stoppable).Shutdown()
	}
	return nil, fmt.Errorf("no such order: %s", given.Op)
}

func obey(given order) {
	defer func() {
		if failure := recover(); failure != nil {
			write(fields{"id": given.ID, "error": fields{"code": nil, "text": fmt.Sprint(failure)}})
		}
	}()
	result, err := carryOut(given)
	if err != nil {
		write(fields{"id": given.ID, "error": fields{"code": nil, "text": err.Error()}})
		return
	}
	write(fields{"id": given.ID, "result": result})
}

func main() {
	rlog.SetLogLevel("error")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var given order
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		go obey(given)
	}
}
