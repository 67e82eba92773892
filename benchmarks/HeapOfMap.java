import java.util.HashMap;
import java.util.Random;

/** Prints the used heap, in bytes, of a HashMap of so many keys of 50 characters with values of 20, after collections. */
public class HeapOfMap {
    private static final int COLLECTIONS = 4;

    private static String text(Random chance, int length, long number) {
        char[] characters = new char[length];
        for (int place = 0; place < length; place++) {
            long digit = place < 8 ? number >> (4 * place) & 15 : chance.nextInt(16);
            characters[place] = Character.forDigit((int) digit, 16);
        }
        return new String(characters);
    }

    private static long used() throws InterruptedException {
        for (int round = 0; round < COLLECTIONS; round++) {
            System.gc();
            Thread.sleep(200);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    public static void main(String[] arguments) throws InterruptedException {
        int rows = Integer.parseInt(arguments[0]);
        Random chance = new Random(1);
        long before = used();
        HashMap<String, String> map = new HashMap<>();
        for (int row = 0; row < rows; row++) {
            map.put(text(chance, 50, row), text(chance, 20, chance.nextInt()));
        }
        long after = used();
        if (map.size() != rows) {
            throw new IllegalStateException("keys are not all different");
        }
        System.out.println(after - before);
    }
}
