import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** A stand-in for your service: it parses, counts, hashes and formats, as services do. */
public final class Service {
  private static final Pattern WORD = Pattern.compile("[a-z]+");
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final AtomicInteger requests = new AtomicInteger();

  private Service() {}

  public static void main(String[] arguments) throws IOException {
    var address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
    var server = HttpServer.create(address, 64);
    server.createContext("/words", exchange -> answer(exchange, words(exchange)));
    server.createContext("/token", exchange -> answer(exchange, token()));
    server.start();
  }

  /** Counts the words of the request and returns them as JSON, with the digest of the counts. */
  private static String words(HttpExchange exchange) throws IOException {
    var text = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
    Map<String, Long> counts =
        WORD.matcher(text.toLowerCase())
            .results()
            .collect(Collectors.groupingBy(match -> match.group(), TreeMap::new, Collectors.counting()));
    var list =
        counts.entrySet().stream()
            .map(entry -> String.format("\"%s\": %d", entry.getKey(), entry.getValue()))
            .collect(Collectors.joining(", "));
    return String.format(
        "{\"requests\": %d, \"digest\": \"%s\", \"words\": {%s}}",
        requests.incrementAndGet(), digest(list), list);
  }

  private static String token() {
    var bytes = new byte[16];
    RANDOM.nextBytes(bytes);
    return String.format("{\"token\": \"%s\"}", HexFormat.of().formatHex(bytes));
  }

  private static String digest(String text) {
    try {
      var digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
      return HexFormat.of().formatHex(digest);
    } catch (java.security.NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void answer(HttpExchange exchange, String body) throws IOException {
    var bytes = body.getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(200, bytes.length);
    try (var stream = exchange.getResponseBody()) {
      stream.write(bytes);
    }
  }
}
