import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Obeys the lines of ../README.md with the remoting client of RocketMQ 4.9 or 5.3; one source for both. */
public final class Driver {
    private static final Gson JSON = new GsonBuilder().serializeNulls().create();
    private static final Map<String, Runnable> ENDINGS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultLitePullConsumer> PULLERS = new ConcurrentHashMap<>();
    private static final AtomicInteger INSTANCES = new AtomicInteger();
    private static final PrintStream OUT = System.out;

    private Driver() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject order = JsonParser.parseString(line).getAsJsonObject();
            workers.execute(() -> obey(order));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void obey(JsonObject order) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", order.get("id"));
        try {
            answer.put("result", carryOut(order));
        } catch (Throwable failure) {
            Map<String, Object> error = new LinkedHashMap<>();
            error.put("code", codeOf(failure));
            error.put("text", textOf(failure));
            answer.put("error", error);
        }
        write(answer);
    }

    private static Integer codeOf(Throwable failure) {
        for (Throwable one = failure; one != null; one = one.getCause()) {
            if (one instanceof MQBrokerException) {
                return ((MQBrokerException) one).getResponseCode();
            }
            if (one instanceof MQClientException && ((MQClientException) one).getResponseCode() > 0) {
                return ((MQClientException) one).getResponseCode();
            }
        }
        return null;
    }

    /** What failed and why: the client says that it failed three times, its cause what the server answered. */
    private static String textOf(Throwable failure) {
        List<String> texts = new ArrayList<>();
        for (Throwable one = failure; one != null; one = one.getCause()) {
            texts.add(String.valueOf(one));
        }
        return String.join("\nbecause of ", texts);
    }

    private static Map<String, Object> carryOut(JsonObject order) throws Exception {
        switch (text(order, "op")) {
            case "open_producer": return openProducer(order);
            case "open_push": return openPush(order);
            case "open_pull": return openPull(order);
            case "send": return send(order);
            case "request": return request(order);
            case "receive": return receive(order);
            case "close":
                ENDINGS.remove(text(order, "client")).run();
                return new LinkedHashMap<>();
            default: throw new IllegalArgumentException(order.toString());
        }
    }

    private static Map<String, Object> openProducer(JsonObject order) throws Exception {
        String name = text(order, "client");
        String group = order.has("group") ? text(order, "group") : "producers-" + name;
        boolean traced = order.has("trace") && order.get("trace").getAsBoolean();
        DefaultMQProducer producer;
        if (order.has("check")) {
            TransactionMQProducer transactional = new TransactionMQProducer(group, hook(order));
            transactional.setTransactionListener(listener(order));
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(group, hook(order), traced, null);
        }
        configure(producer, order);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        PRODUCERS.put(name, producer);
        return opened(name, producer::shutdown);
    }

    private static TransactionListener listener(JsonObject order) {
        String name = text(order, "client");
        String answer = text(order, "check");
        return new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
                return state(String.valueOf(wanted));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                event("check", name, message);
                return state(answer);
            }
        };
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    private static Map<String, Object> openPush(JsonObject order) throws Exception {
        String name = text(order, "client");
        AllocateMessageQueueStrategy sharing = new AllocateMessageQueueAveragely();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(text(order, "group"), hook(order), sharing);
        configure(consumer, order);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String model = text(order, "model");
        if ("broadcast".equals(model)) {
            // Of another package in 4.9 than in 5.3.
            Class<?> kind = Arrays.stream(DefaultMQPushConsumer.class.getMethods())
                .filter(method -> method.getName().equals("setMessageModel")).findFirst().get().getParameterTypes()[0];
            DefaultMQPushConsumer.class.getMethod("setMessageModel", kind).invoke(consumer, kind.getField("BROADCASTING").get(null));
        }
        if (order.has("attempts")) {
            consumer.setMaxReconsumeTimes(order.get("attempts").getAsInt() - 1);
        }
        if (order.has("pop") && order.get("pop").getAsBoolean()) {
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        if (order.has("sql")) {
            consumer.subscribe(text(order, "topic"), MessageSelector.bySql(text(order, "sql")));
        } else {
            consumer.subscribe(text(order, "topic"), order.has("filter") ? text(order, "filter") : "*");
        }
        JsonObject failing = order.has("fail") ? order.getAsJsonObject("fail") : new JsonObject();
        if (order.has("orderly") && order.get("orderly").getAsBoolean()) {
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                boolean fails = consumed(name, messages, failing, order);
                return fails ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean fails = consumed(name, messages, failing, order);
                return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        return opened(name, consumer::shutdown);
    }

    /** Tells of the messages; whether one of them is to fail. */
    private static boolean consumed(String name, List<MessageExt> messages, JsonObject failing, JsonObject order) {
        boolean fails = false;
        for (MessageExt message : messages) {
            event("message", name, message);
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            fails |= failing.has(body) && message.getReconsumeTimes() < failing.get(body).getAsInt();
            if (order.has("reply")) {
                reply(name, order, message);
            }
        }
        return fails;
    }

    private static void reply(String name, JsonObject order, MessageExt message) {
        try {
            PRODUCERS.get(text(order, "reply")).send(
                MessageUtil.createReplyMessage(message, ("answer to " + new String(message.getBody())).getBytes()), 3000);
        } catch (Exception failure) {
            System.err.println(name + " cannot reply: " + failure);
        }
    }

    private static Map<String, Object> openPull(JsonObject order) throws Exception {
        String name = text(order, "client");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(text(order, "group"), hook(order));
        configure(consumer, order);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(text(order, "topic"), order.has("filter") ? text(order, "filter") : "*");
        consumer.start();
        PULLERS.put(name, consumer);
        return opened(name, consumer::shutdown);
    }

    private static Map<String, Object> send(JsonObject order) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(text(order, "client"));
        Map<String, Object> result = new LinkedHashMap<>();
        if (order.has("messages")) {
            List<Message> batch = new ArrayList<>();
            order.getAsJsonArray("messages").forEach(wanted -> batch.add(outgoing(wanted.getAsJsonObject())));
            return told(producer.send(batch));
        }
        JsonObject wanted = order.getAsJsonObject("message");
        Message message = outgoing(wanted);
        if (order.has("oneway") && order.get("oneway").getAsBoolean()) {
            producer.sendOneway(message);
            return result;
        }
        if (order.has("transaction")) {
            return told(producer.sendMessageInTransaction(message, text(order, "transaction")));
        }
        if (wanted.has("group")) {
            return told(producer.send(message, (queues, one, key) ->
                queues.get(Math.abs(key.hashCode()) % queues.size()), text(wanted, "group")));
        }
        return told(producer.send(message));
    }

    private static Map<String, Object> told(SendResult sent) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("id", sent.getMsgId());
        result.put("status", sent.getSendStatus().name());
        result.put("queue_offset", sent.getQueueOffset());
        return result;
    }

    private static Map<String, Object> request(JsonObject order) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(text(order, "client"));
        Message answer = producer.request(outgoing(order.getAsJsonObject("message")), 20_000);
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("body", new String(answer.getBody(), StandardCharsets.UTF_8));
        return result;
    }

    private static Map<String, Object> receive(JsonObject order) throws Exception {
        DefaultLitePullConsumer consumer = PULLERS.get(text(order, "client"));
        List<Map<String, Object>> found = new ArrayList<>();
        consumer.poll(order.get("await_s").getAsLong() * 1000).forEach(message -> found.add(shown(message)));
        consumer.commitSync();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("messages", found);
        return result;
    }

    private static Message outgoing(JsonObject wanted) {
        Message message = new Message(text(wanted, "topic"), text(wanted, "body").getBytes(StandardCharsets.UTF_8));
        if (wanted.has("tag")) {
            message.setTags(text(wanted, "tag"));
        }
        if (wanted.has("keys")) {
            message.setKeys(Arrays.asList(JSON.fromJson(wanted.get("keys"), String[].class)));
        }
        if (wanted.has("properties")) {
            wanted.getAsJsonObject("properties").entrySet().forEach(
                entry -> message.putUserProperty(entry.getKey(), entry.getValue().getAsString()));
        }
        if (wanted.has("level")) {
            message.setDelayTimeLevel(wanted.get("level").getAsInt());
        }
        return message;
    }

    private static void configure(ClientConfig client, JsonObject order) throws Exception {
        client.setNamesrvAddr(text(order, "endpoint"));
        client.setInstanceName("i" + INSTANCES.incrementAndGet());
        // As often as a client may ask, so that no scenario waits half a minute for it.
        client.setPollNameServerInterval(1000);
        client.setMqClientApiTimeout(10_000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        if (order.has("tls")) {
            client.setUseTLS(order.get("tls").getAsBoolean());
        }
    }

    private static RPCHook hook(JsonObject order) {
        String key = text(order, "access_key");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, text(order, "secret_key")));
    }

    private static Map<String, Object> opened(String name, Runnable ending) {
        ENDINGS.put(name, ending);
        return new LinkedHashMap<>();
    }

    private static void event(String kind, String client, MessageExt message) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("event", kind);
        event.put("client", client);
        event.put("message", shown(message));
        write(event);
    }

    private static Map<String, Object> shown(MessageExt message) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("id", message.getMsgId());
        shown.put("topic", message.getTopic());
        shown.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        shown.put("tag", message.getTags());
        shown.put("keys", message.getKeys() == null ? new String[0] : message.getKeys().split(" "));
        shown.put("properties", new TreeMap<>(message.getProperties()));
        shown.put("attempt", message.getReconsumeTimes() + 1);
        shown.put("queue", message.getQueueId());
        shown.put("queue_offset", message.getQueueOffset());
        return shown;
    }

    private static String text(JsonObject order, String name) {
        JsonElement value = order.get(name);
        return value == null || value.isJsonNull() ? null : value.getAsString();
    }

    private static synchronized void write(Map<String, Object> value) {
        OUT.println(JSON.toJson(value));
        OUT.flush();
    }
}
