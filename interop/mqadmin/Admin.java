import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of mqadmin, one after another: a JSON list of words in, a JSON text of all that was printed out.
 * Two more commands, for there to be something to look at: `consume NAMESERVER GROUP TOPIC` starts a push consumer that
 * stays, `produce NAMESERVER GROUP TOPIC BODY...` a producer that stays, and sends.
 */
public class Admin {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream sink = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(sink);
            System.setErr(sink);
            try {
                run(JSON.parseArray(line, String.class), sink);
            } catch (Exception error) {
                error.printStackTrace(sink);
            }
            answers.println(JSON.toJSONString(printed.toString(StandardCharsets.UTF_8)));
            answers.flush();
        }
        System.exit(0);
    }

    private static void run(List<String> words, PrintStream sink) throws Exception {
        if (words.get(0).equals("consume")) {
            consume(words.get(1), words.get(2), words.get(3));
        } else if (words.get(0).equals("produce")) {
            produce(words.get(1), words.get(2), words.get(3), words.subList(4, words.size()), sink);
        } else {
            MQAdminStartup.main0(words.toArray(new String[0]), null);
        }
    }

    private static void consume(String nameserver, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
    }

    private static void produce(
            String nameserver, String group, String topic, List<String> bodies, PrintStream sink) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, true, null);
        producer.setNamesrvAddr(nameserver);
        producer.start();
        for (String body : bodies) {
            Message message = new Message(topic, "blue", "key-" + body, body.getBytes(StandardCharsets.UTF_8));
            sink.println(JSON.toJSONString(producer.send(message)));
        }
    }
}
