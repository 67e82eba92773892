// Obeys the lines of ../README.md with the official Go client of gRPC, which begins with TLS where nobody says otherwise.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	mq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type message struct {
	Topic       string            `json:"topic"`
	Body        string            `json:"body"`
	Tag         string            `json:"tag"`
	Keys        []string          `json:"keys"`
	Group       string            `json:"group"`
	Properties  map[string]string `json:"properties"`
	DeliverAtMs int64             `json:"deliver_at_ms"`
}

type order struct {
	ID          int            `json:"id"`
	Op          string         `json:"op"`
	Client      string         `json:"client"`
	Endpoint    string         `json:"endpoint"`
	Topics      []string       `json:"topics"`
	Check       string         `json:"check"`
	Group       string         `json:"group"`
	Topic       string         `json:"topic"`
	Filter      string         `json:"filter"`
	SQL         string         `json:"sql"`
	Fail        map[string]int `json:"fail"`
	AwaitS      int            `json:"await_s"`
	Message     message        `json:"message"`
	Transaction string         `json:"transaction"`
	Max         int32          `json:"max"`
	InvisibleS  int            `json:"invisible_s"`
	IDOfMessage string         `json:"id_of_message"`
	AccessKey   string         `json:"access_key"`
	SecretKey   string         `json:"secret_key"`
	Namespace   string         `json:"namespace"`
}

type stoppable interface{ GracefulStop() error }

type fields map[string]any

var (
	clients  sync.Map
	received sync.Map
	writing  sync.Mutex
)

var resolutions = map[string]mq.TransactionResolution{
	"commit": mq.COMMIT, "rollback": mq.ROLLBACK, "unknown": mq.UNKNOWN,
}

func write(value fields) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	writing.Lock()
	defer writing.Unlock()
	fmt.Println(string(line))
}

func shown(view *mq.MessageView) fields {
	found := fields{
		"id": view.GetMessageId(), "topic": view.GetTopic(), "body": string(view.GetBody()), "tag": view.GetTag(),
		"keys": view.GetKeys(), "group": view.GetMessageGroup(), "properties": view.GetProperties(),
		"attempt": view.GetDeliveryAttempt(), "deliver_at_ms": nil, "priority": nil, "lite_topic": nil,
	}
	if due := view.GetDeliveryTimestamp(); due != nil {
		found["deliver_at_ms"] = due.UnixMilli()
	}
	return found
}

func configuration(given order) *mq.Config {
	return &mq.Config{
		Endpoint: given.Endpoint, NameSpace: given.Namespace, ConsumerGroup: given.Group,
		Credentials: &credentials.SessionCredentials{AccessKey: given.AccessKey, AccessSecret: given.SecretKey},
	}
}

func subscriptions(given order) map[string]*mq.FilterExpression {
	filter := mq.SUB_ALL
	if given.SQL != "" {
		filter = mq.NewFilterExpressionWithType(given.SQL, mq.SQL92)
	} else if given.Filter != "" {
		filter = mq.NewFilterExpression(given.Filter)
	}
	return map[string]*mq.FilterExpression{given.Topic: filter}
}

func openProducer(given order) (fields, error) {
	options := []mq.ProducerOption{mq.WithTopics(given.Topics...)}
	if given.Check != "" {
		options = append(options, mq.WithTransactionChecker(&mq.TransactionChecker{
			Check: func(view *mq.MessageView) mq.TransactionResolution {
				write(fields{"event": "check", "client": given.Client, "message": shown(view)})
				return resolutions[given.Check]
			},
		}))
	}
	producer, err := mq.NewProducer(configuration(given), options...)
	if err != nil {
		return nil, err
	}
	clients.Store(given.Client, producer)
	return fields{}, producer.Start()
}

func openPush(given order) (fields, error) {
	listener := &mq.FuncMessageListener{Consume: func(view *mq.MessageView) mq.ConsumerResult {
		write(fields{"event": "message", "client": given.Client, "message": shown(view)})
		if int(view.GetDeliveryAttempt()) <= given.Fail[string(view.GetBody())] {
			return mq.FAILURE
		}
		return mq.SUCCESS
	}}
	// Without a time of its own the client does not wait for messages at all.
	consumer, err := mq.NewPushConsumer(configuration(given), mq.WithPushAwaitDuration(5*time.Second),
		mq.WithPushSubscriptionExpressions(subscriptions(given)), mq.WithPushMessageListener(listener),
		mq.WithPushConsumptionThreadCount(20), mq.WithPushMaxCacheMessageCount(1024))
	if err != nil {
		return nil, err
	}
	clients.Store(given.Client, consumer)
	return fields{}, consumer.Start()
}

func openSimple(given order) (fields, error) {
	consumer, err := mq.NewSimpleConsumer(configuration(given),
		mq.WithSimpleAwaitDuration(time.Duration(given.AwaitS)*time.Second),
		mq.WithSimpleSubscriptionExpressions(subscriptions(given)))
	if err != nil {
		return nil, err
	}
	clients.Store(given.Client, consumer)
	return fields{}, consumer.Start()
}

func outgoing(wanted message) *mq.Message {
	made := &mq.Message{Topic: wanted.Topic, Body: []byte(wanted.Body)}
	if wanted.Tag != "" {
		made.SetTag(wanted.Tag)
	}
	if wanted.Keys != nil {
		made.SetKeys(wanted.Keys...)
	}
	if wanted.Group != "" {
		made.SetMessageGroup(wanted.Group)
	}
	for name, value := range wanted.Properties {
		made.AddProperty(name, value)
	}
	if wanted.DeliverAtMs != 0 {
		made.SetDelayTimestamp(time.UnixMilli(wanted.DeliverAtMs))
	}
	return made
}

func send(given order) (fields, error) {
	found, _ := clients.Load(given.Client)
	producer := found.(mq.Producer)
	if given.Transaction == "" {
		receipts, err := producer.Send(context.Background(), outgoing(given.Message))
		if err != nil {
			return nil, err
		}
		return fields{"id": receipts[0].MessageID, "recall_handle": nil}, nil
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), outgoing(given.Message), transaction)
	if err != nil {
		return nil, err
	}
	switch given.Transaction {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return fields{"id": receipts[0].MessageID, "recall_handle": nil}, err
}

func simple(given order) mq.SimpleConsumer {
	found, _ := clients.Load(given.Client)
	return found.(mq.SimpleConsumer)
}

func messageOf(given order) *mq.MessageView {
	found, _ := received.Load(given.IDOfMessage)
	return found.(*mq.MessageView)
}

func receive(given order) (fields, error) {
	invisible := time.Duration(given.InvisibleS) * time.Second
	views, err := simple(given).Receive(context.Background(), given.Max, invisible)
	if status, is := mq.AsErrRpcStatus(err); err != nil && is && status.GetCode() == messageNotFound {
		views, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := []fields{}
	for _, view := range views {
		received.Store(view.GetMessageId(), view)
		found = append(found, shown(view))
	}
	return fields{"messages": found}, nil
}

// The client raises it where there is nothing to receive.
const messageNotFound = 40401

func carryOut(given order) (fields, error) {
	switch given.Op {
	case "open_producer":
		return openProducer(given)
	case "open_push":
		return openPush(given)
	case "open_simple":
		return openSimple(given)
	case "send":
		return send(given)
	case "receive":
		return receive(given)
	case "ack":
		return fields{}, simple(given).Ack(context.Background(), messageOf(given))
	case "change_invisible":
		invisible := time.Duration(given.InvisibleS) * time.Second
		return fields{}, simple(given).ChangeInvisibleDuration(messageOf(given), invisible)
	case "close":
		found, _ := clients.LoadAndDelete(given.Client)
		return fields{}, found.(stoppable).GracefulStop()
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
	if err == nil {
		write(fields{"id": given.ID, "result": result})
		return
	}
	failure := fields{"code": nil, "text": err.Error()}
	if status, is := mq.AsErrRpcStatus(err); is {
		failure["code"] = status.GetCode()
	}
	write(fields{"id": given.ID, "error": failure})
}

func main() {
	os.Setenv("rocketmq.client.logRoot", os.TempDir()+"/rocketmq-go-client")
	mq.ResetLogger()
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
