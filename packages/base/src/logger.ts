/** JSON lines on stderr (or a given stream). Passed down, never global. */
import { pino, type DestinationStream } from "pino";

export interface Logger {
  debug(fields: object, message?: string): void;
  info(fields: object, message?: string): void;
  warn(fields: object, message?: string): void;
  error(fields: object, message?: string): void;
  child(fields: object): Logger;
  isLevelEnabled(level: string): boolean;
}

const secretNames = /token|secret|password|authorization|api_?key|^env$/i;

/** A copy of `value` in which the values of secret-looking keys are hidden. */
export function redact(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(redact);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, secretNames.test(key) ? "[redacted]" : redact(inner)]),
  );
}

export function createLogger(options: { level: string; destination?: DestinationStream }): Logger {
  const settings = {
    level: options.level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    // The usual serialiser appends the message of the cause, which our messages already contain.
    serializers: { err: pino.stdSerializers.errWithCause },
    formatters: {
      level: (label: string) => ({ level: label }),
      // Errors keep their own serialisation.
      log: (fields: Record<string, unknown>) =>
        Object.fromEntries(
          Object.entries(fields).map(([key, value]) => [
            key,
            value instanceof Error ? value : secretNames.test(key) ? "[redacted]" : redact(value),
          ]),
        ),
    },
  };
  return options.destination ? pino(settings, options.destination) : pino(settings, pino.destination(2));
}

export function nullLogger(): Logger {
  return pino({ level: "silent" });
}
