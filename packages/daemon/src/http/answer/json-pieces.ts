/**
 * One value → the pieces of its JSON. A large answer would take a long turn of the event loop to encode, and as
 * JSON several times the memory of its value: a guest may print control characters, each of which has six
 * characters in JSON. Only one piece is in memory at a time.
 */
import { JsonText, stringifyJson } from "@forkd/base";

/** A text with more characters has several pieces. */
const longChars = 64 * 1024;
/** Characters of a text that become one piece. V8 collects strings of this size soon, larger ones late. */
const pieceChars = 16 * 1024;
/** Entries of a list that become one piece; an entry may have long texts */
const pieceEntries = 50;
/** A list with more entries has short ones: to search them would cost as much as to encode them. */
const searchedEntries = 250;
/** Levels at which an answer may have a large text or list. */
const maxLevels = 3;

/** Nothing in the value is so large that it needs more than one piece. */
export function isOnePiece(value: unknown, level = 0): boolean {
  if (typeof value === "string") return value.length <= longChars;
  if (value instanceof JsonText) return value.text.length <= longChars;
  if (typeof value !== "object" || value === null || level >= maxLevels) return true;
  if (!Array.isArray(value))
    return !isPlain(value) || Object.values(value).every((each) => isOnePiece(each, level + 1));
  return value.length <= pieceEntries && value.every((each) => isOnePiece(each, level + 1));
}

/** The joined pieces equal stringifyJson(value). */
export function* jsonPieces(value: unknown, level = 0): Generator<string> {
  if (isOnePiece(value, level)) yield stringifyJson(value);
  else if (typeof value === "string") yield* textPieces(value);
  else if (value instanceof JsonText) yield* slices(value.text);
  else if (Array.isArray(value)) yield* listPieces(value, level);
  else yield* objectPieces(value as Record<string, unknown>, level);
}

function* slices(text: string): Generator<string> {
  for (let at = 0; at < text.length;) {
    let end = Math.min(at + pieceChars, text.length);
    // Both halves of a surrogate pair stay in one piece.
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end--;
    yield text.slice(at, end);
    at = end;
  }
}

function* textPieces(text: string): Generator<string> {
  yield '"';
  for (const slice of slices(text)) yield JSON.stringify(slice).slice(1, -1);
  yield '"';
}

function* listPieces(list: readonly unknown[], level: number): Generator<string> {
  const isSearched = list.length <= searchedEntries;
  if (isSearched && !list.every((each) => isOnePiece(each, level + 1)))
    return yield* longEntries(list, level);
  for (let at = 0; at < list.length; at += pieceEntries) {
    const text = stringifyJson(list.slice(at, at + pieceEntries));
    yield `${at === 0 ? "[" : ","}${text.slice(1, -1)}`;
  }
  yield "]";
}

function* longEntries(list: readonly unknown[], level: number): Generator<string> {
  let before = "[";
  for (const entry of list) {
    yield before;
    // As in JSON.stringify(), there are no gaps in a list.
    yield* entry === undefined ? ["null"] : jsonPieces(entry, level + 1);
    before = ",";
  }
  yield "]";
}

function* objectPieces(object: Readonly<Record<string, unknown>>, level: number): Generator<string> {
  let before = "{";
  for (const [name, value] of Object.entries(object)) {
    if (value === undefined) continue;
    yield `${before}${JSON.stringify(name)}:`;
    yield* jsonPieces(value, level + 1);
    before = ",";
  }
  yield before === "{" ? "{}" : "}";
}

/** Without a method that decides how it is encoded. */
function isPlain(value: object): boolean {
  return !("toJSON" in value);
}
