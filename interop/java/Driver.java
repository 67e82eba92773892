import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Obeys the lines of ../README.md with the official Java client. What older versions do not have is asked for by name. */
public final class Driver {
    private static final Gson JSON = new GsonBuilder().serializeNulls().create();
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Map<String, Closeable> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, MessageView> RECEIVED = new ConcurrentHashMap<>();
    private static final PrintStream OUT = System.out;

    private Driver() {
    }

    public static void main(String[] arguments) throws Exception {
        // The client's own log goes to files and standard error; standard output is for answers alone.
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
            error.put("text", String.valueOf(failure));
            answer.put("error", error);
        }
        write(answer);
    }

    private static Integer codeOf(Throwable failure) {
        for (Throwable one = failure; one != null; one = one.getCause()) {
            String text = String.valueOf(one.getMessage());
            int at = text.indexOf("response-code=");
            if (at >= 0) {
                String digits = text.substring(at + "response-code=".length()).split("[^0-9]")[0];
                return Integer.valueOf(digits);
            }
        }
        return null;
    }

    private static Map<String, Object> carryOut(JsonObject order) throws Exception {
        switch (text(order, "op")) {
            case "open_producer": return openProducer(order);
            case "open_push": return openPush(order);
            case "open_lite_push": return openLitePush(order);
            case "open_simple": return openSimple(order);
            case "send": return send(order);
            case "recall": return recall(order);
            case "receive": return receive(order);
            case "ack":
                simple(order).ack(RECEIVED.get(text(order, "id_of_message")));
                return Map.of();
            case "change_invisible":
                simple(order).changeInvisibleDuration(RECEIVED.get(text(order, "id_of_message")), seconds(order));
                return Map.of();
            case "close":
                CLIENTS.remove(text(order, "client")).close();
                return Map.of();
            default: throw new IllegalArgumentException(order.toString());
        }
    }

    private static Map<String, Object> openProducer(JsonObject order) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration(order));
        builder.setTopics(JSON.fromJson(order.get("topics"), String[].class));
        String name = text(order, "client");
        String resolution = text(order, "check");
        if (resolution != null) {
            builder.setTransactionChecker(view -> {
                event("check", name, view);
                return resolution.equals("unknown")
                    ? TransactionResolution.UNKNOWN : TransactionResolution.valueOf(resolution.toUpperCase());
            });
        }
        return opened(name, builder.build());
    }

    private static Map<String, Object> openPush(JsonObject order) throws Exception {
        return opened(text(order, "client"), PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration(order))
            .setConsumerGroup(text(order, "group"))
            .setSubscriptionExpressions(Collections.singletonMap(text(order, "topic"), filter(order)))
            .setMessageListener(listener(order))
            .build());
    }

    private static Map<String, Object> openLitePush(JsonObject order) throws Exception {
        Object builder = call(PROVIDER, "newLitePushConsumerBuilder");
        call(builder, "setClientConfiguration", configuration(order));
        call(builder, "setConsumerGroup", text(order, "group"));
        call(builder, "bindTopic", text(order, "topic"));
        call(builder, "setMessageListener", listener(order));
        Object consumer = call(builder, "build");
        opened(text(order, "client"), (Closeable) consumer);
        for (JsonElement name : order.getAsJsonArray("lite_topics")) {
            call(consumer, "subscribeLite", name.getAsString());
        }
        return Map.of();
    }

    private static Map<String, Object> openSimple(JsonObject order) throws Exception {
        return opened(text(order, "client"), PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(order))
            .setConsumerGroup(text(order, "group"))
            .setSubscriptionExpressions(Collections.singletonMap(text(order, "topic"), filter(order)))
            .setAwaitDuration(Duration.ofSeconds(order.get("await_s").getAsLong()))
            .build());
    }

    private static Map<String, Object> send(JsonObject order) throws Exception {
        Producer producer = (Producer) CLIENTS.get(text(order, "client"));
        Message message = outgoing(order.getAsJsonObject("message"));
        String ending = text(order, "transaction");
        Map<String, Object> result = new LinkedHashMap<>();
        if (ending == null) {
            SendReceipt receipt = producer.send(message);
            result.put("id", receipt.getMessageId().toString());
            String handle = has(receipt, "getRecallHandle") ? (String) call(receipt, "getRecallHandle") : null;
            result.put("recall_handle", handle == null || handle.isEmpty() ? null : handle);
            return result;
        }
        Transaction transaction = producer.beginTransaction();
        result.put("id", producer.send(message, transaction).getMessageId().toString());
        result.put("recall_handle", null);
        if (ending.equals("commit")) {
            transaction.commit();
        } else if (ending.equals("rollback")) {
            transaction.rollback();
        }
        return result;
    }

    private static Map<String, Object> recall(JsonObject order) throws Exception {
        Producer producer = (Producer) CLIENTS.get(text(order, "client"));
        Object receipt = call(producer, "recallMessage", text(order, "topic"), text(order, "handle"));
        return Map.of("id", call(receipt, "getMessageId").toString());
    }

    private static Map<String, Object> receive(JsonObject order) throws Exception {
        var views = simple(order).receive(order.get("max").getAsInt(), seconds(order));
        views.forEach(view -> RECEIVED.put(view.getMessageId().toString(), view));
        return Map.of("messages", views.stream().map(Driver::shown).toList());
    }

    private static MessageListener listener(JsonObject order) {
        String name = text(order, "client");
        JsonObject failing = order.has("fail") ? order.getAsJsonObject("fail") : new JsonObject();
        return view -> {
            event("message", name, view);
            String body = StandardCharsets.UTF_8.decode(view.getBody().duplicate()).toString();
            int attempts = failing.has(body) ? failing.get(body).getAsInt() : 0;
            return view.getDeliveryAttempt() <= attempts ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
    }

    private static Message outgoing(JsonObject wanted) throws Exception {
        MessageBuilder builder = PROVIDER.newMessageBuilder()
            .setTopic(text(wanted, "topic"))
            .setBody(text(wanted, "body").getBytes(StandardCharsets.UTF_8));
        if (wanted.has("tag")) {
            builder.setTag(text(wanted, "tag"));
        }
        if (wanted.has("keys")) {
            builder.setKeys(JSON.fromJson(wanted.get("keys"), String[].class));
        }
        if (wanted.has("group")) {
            builder.setMessageGroup(text(wanted, "group"));
        }
        if (wanted.has("properties")) {
            wanted.getAsJsonObject("properties").entrySet().forEach(
                entry -> builder.addProperty(entry.getKey(), entry.getValue().getAsString()));
        }
        if (wanted.has("deliver_at_ms")) {
            builder.setDeliveryTimestamp(wanted.get("deliver_at_ms").getAsLong());
        }
        if (wanted.has("priority")) {
            call(builder, "setPriority", wanted.get("priority").getAsInt());
        }
        if (wanted.has("lite_topic")) {
            call(builder, "setLiteTopic", text(wanted, "lite_topic"));
        }
        return builder.build();
    }

    private static ClientConfiguration configuration(JsonObject order) throws Exception {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(text(order, "endpoint"));
        if (text(order, "namespace") != null) {
            call(builder, "setNamespace", text(order, "namespace"));
        }
        if (text(order, "access_key") != null) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(text(order, "access_key"), text(order, "secret_key")));
        }
        return builder.build();
    }

    private static FilterExpression filter(JsonObject order) {
        if (text(order, "sql") != null) {
            return new FilterExpression(text(order, "sql"), FilterExpressionType.SQL92);
        }
        String tags = text(order, "filter");
        return new FilterExpression(tags == null ? "*" : tags, FilterExpressionType.TAG);
    }

    private static Map<String, Object> opened(String name, Closeable client) {
        CLIENTS.put(name, client);
        return Map.of();
    }

    private static SimpleConsumer simple(JsonObject order) {
        return (SimpleConsumer) CLIENTS.get(text(order, "client"));
    }

    private static Duration seconds(JsonObject order) {
        return Duration.ofSeconds(order.get("invisible_s").getAsLong());
    }

    private static void event(String kind, String client, MessageView view) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("event", kind);
        event.put("client", client);
        event.put("message", shown(view));
        write(event);
    }

    private static Map<String, Object> shown(MessageView view) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("id", view.getMessageId().toString());
        shown.put("topic", view.getTopic());
        shown.put("body", StandardCharsets.UTF_8.decode(view.getBody().duplicate()).toString());
        shown.put("tag", view.getTag().orElse(null));
        shown.put("keys", view.getKeys());
        shown.put("group", view.getMessageGroup().orElse(null));
        shown.put("properties", view.getProperties());
        shown.put("attempt", view.getDeliveryAttempt());
        shown.put("deliver_at_ms", view.getDeliveryTimestamp().orElse(null));
        shown.put("priority", ofNewer(view, "getPriority"));
        shown.put("lite_topic", ofNewer(view, "getLiteTopic"));
        return shown;
    }

    private static Object ofNewer(MessageView view, String name) {
        try {
            return has(view, name) ? ((Optional<?>) call(view, name)).orElse(null) : null;
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static boolean has(Object target, String name) {
        return method(target.getClass(), name, 0) != null;
    }

    private static Object call(Object target, String name, Object... arguments) throws Exception {
        Method found = method(target.getClass(), name, arguments.length);
        if (found == null) {
            throw new UnsupportedOperationException("this version of the client has no " + name);
        }
        try {
            return found.invoke(target, arguments);
        } catch (InvocationTargetException failure) {
            throw failure.getCause() instanceof Exception ? (Exception) failure.getCause() : failure;
        }
    }

    /** As an interface declares it: the classes that implement it are not public. */
    private static Method method(Class<?> kind, String name, int argumentCount) {
        for (Class<?> one = kind; one != null; one = one.getSuperclass()) {
            for (Class<?> offered : one.getInterfaces()) {
                for (Method method : offered.getMethods()) {
                    if (method.getName().equals(name) && method.getParameterCount() == argumentCount) {
                        return method;
                    }
                }
            }
        }
        return null;
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
