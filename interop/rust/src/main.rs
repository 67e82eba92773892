// Obeys the lines of ../README.md with the official Rust client. It has no push consumer, and receives by tags alone.
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::sync::Mutex;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
}

#[derive(Default)]
struct State {
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    consumers: Mutex<HashMap<String, Arc<Consumer>>>,
    received: Mutex<HashMap<String, Arc<MessageView>>>,
}

fn write(value: Value) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{value}");
    let _ = output.flush();
}

fn text(order: &Value, name: &str) -> String {
    order[name].as_str().unwrap_or_default().to_string()
}

fn shown(view: &MessageView) -> Value {
    json!({
        "id": view.message_id(), "topic": view.topic(), "body": String::from_utf8_lossy(view.body()),
        "tag": view.tag(), "keys": view.keys(), "group": view.message_group(), "properties": view.properties(),
        "attempt": view.delivery_attempt(), "deliver_at_ms": view.delivery_timestamp().map(|seconds| seconds * 1000),
        "priority": null, "lite_topic": null,
    })
}

fn configuration(order: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(order, "endpoint"));
    if order["access_key"].is_string() {
        option.set_access_key(text(order, "access_key"));
        option.set_secret_key(text(order, "secret_key"));
    }
    if let Some(seconds) = order["await_s"].as_u64() {
        option.set_long_polling_timeout(Duration::from_secs(seconds));
    }
    option
}

async fn open_producer(state: &State, order: &Value) -> Result<Value, Failure> {
    let mut option = ProducerOption::default();
    let topics = order["topics"].as_array().cloned().unwrap_or_default();
    option.set_topics(topics.iter().map(|topic| topic.as_str().unwrap_or_default()).collect());
    let mut producer = match order["check"].as_str() {
        None => Producer::new(option, configuration(order))?,
        Some(answer) => {
            let (answer, name) = (answer.to_string(), text(order, "client"));
            let check = move |_: String, view: MessageView| {
                write(json!({"event": "check", "client": name, "message": shown(&view)}));
                match answer.as_str() {
                    "commit" => TransactionResolution::COMMIT,
                    "rollback" => TransactionResolution::ROLLBACK,
                    _ => TransactionResolution::UNKNOWN,
                }
            };
            Producer::new_transaction_producer(option, configuration(order), Box::new(check))?
        }
    };
    producer.start().await?;
    state.producers.lock().await.insert(text(order, "client"), Arc::new(producer));
    Ok(json!({}))
}

async fn open_simple(state: &State, order: &Value) -> Result<Value, Failure> {
    let mut option = SimpleConsumerOption::default();
    option.set_consumer_group(text(order, "group"));
    option.set_topics(vec![text(order, "topic")]);
    let mut client = SimpleConsumer::new(option, configuration(order))?;
    client.start().await?;
    let filter = FilterExpression::new(FilterType::Tag, order["filter"].as_str().unwrap_or("*"));
    let consumer = Consumer { client, topic: text(order, "topic"), filter };
    state.consumers.lock().await.insert(text(order, "client"), Arc::new(consumer));
    Ok(json!({}))
}

async fn send(state: &State, order: &Value) -> Result<Value, Failure> {
    let wanted = &order["message"];
    let producer = state.producers.lock().await[&text(order, "client")].clone();
    let (topic, body) = (text(wanted, "topic"), text(wanted, "body").into_bytes());
    let mut builder = MessageBuilder::builder().set_topic(topic).set_body(body);
    if let Some(tag) = wanted["tag"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(keys) = wanted["keys"].as_array() {
        builder = builder.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if let Some(properties) = wanted["properties"].as_object() {
        let pairs = properties.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_string()));
        builder = builder.set_properties(pairs.collect::<HashMap<String, String>>());
    }
    if let Some(group) = wanted["group"].as_str() {
        builder = builder.set_message_group(group);
    }
    if let Some(due_ms) = wanted["deliver_at_ms"].as_i64() {
        builder = builder.set_delivery_timestamp(due_ms / 1000);
    }
    let Some(ending) = order["transaction"].as_str() else {
        let receipt = producer.send(builder.build()?).await?;
        return Ok(json!({"id": receipt.message_id(), "recall_handle": null}));
    };
    let transaction = producer.send_transaction_message(builder.enable_transaction().build()?).await?;
    let answer = json!({"id": transaction.message_id(), "recall_handle": null});
    match ending {
        "commit" => transaction.commit().await?,
        "rollback" => transaction.rollback().await?,
        _ => {}
    }
    Ok(answer)
}

async fn receive(state: &State, order: &Value) -> Result<Value, Failure> {
    let consumer = state.consumers.lock().await[&text(order, "client")].clone();
    let most = order["max"].as_i64().unwrap_or(16) as i32;
    let invisible = Duration::from_secs(order["invisible_s"].as_u64().unwrap_or(30));
    let views = consumer.client.receive_with(&consumer.topic, &consumer.filter, most, invisible).await?;
    let messages: Vec<Value> = views.iter().map(shown).collect();
    let mut received = state.received.lock().await;
    for view in views {
        received.insert(view.message_id().to_string(), Arc::new(view));
    }
    Ok(json!({"messages": messages}))
}

async fn ack(state: &State, order: &Value) -> Result<Value, Failure> {
    let consumer = state.consumers.lock().await[&text(order, "client")].clone();
    let view = state.received.lock().await[&text(order, "id_of_message")].clone();
    consumer.client.ack(view.as_ref()).await?;
    Ok(json!({}))
}

async fn close(state: &State, order: &Value) -> Result<Value, Failure> {
    let name = text(order, "client");
    if let Some(producer) = state.producers.lock().await.remove(&name) {
        if let Ok(producer) = Arc::try_unwrap(producer) {
            producer.shutdown().await?;
        }
    }
    if let Some(consumer) = state.consumers.lock().await.remove(&name) {
        if let Ok(consumer) = Arc::try_unwrap(consumer) {
            consumer.client.shutdown().await?;
        }
    }
    Ok(json!({}))
}

async fn carry_out(state: &State, order: &Value) -> Result<Value, Failure> {
    match order["op"].as_str().unwrap_or_default() {
        "open_producer" => open_producer(state, order).await,
        "open_simple" => open_simple(state, order).await,
        "send" => send(state, order).await,
        "receive" => receive(state, order).await,
        "ack" => ack(state, order).await,
        "close" => close(state, order).await,
        other => Err(format!("no such order: {other}").into()),
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let state = Arc::new(State::default());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let order: Value = serde_json::from_str(&line).expect("an order");
        let state = state.clone();
        runtime.spawn(async move {
            match carry_out(&state, &order).await {
                Ok(result) => write(json!({"id": order["id"], "result": result})),
                Err(error) => {
                    write(json!({"id": order["id"], "error": {"code": null, "text": error.to_string()}}))
                }
            }
        });
    }
    std::process::exit(0);
}
