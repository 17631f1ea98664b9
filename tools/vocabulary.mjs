/** Finds words that pages, comments and messages avoid (CONTRIBUTING.md, "Language"). */

/** Pattern → what to write instead. A blank in a pattern also matches a line break inside a comment. */
const avoided = [
  ["whoever", "the actor: the caller, the client, the user"],
  ["(?<![\"'`])nobody(?![\"'`:])|somebody", "the actor: the caller, the client, no process"],
  ["anew", "again"],
  ["(?:go|goes|going|went|gone) on(?! the)", "continue, keep running"],
  ["(?:stand|stands|standing|stood) still", "is paused, is stopped"],
  ["(?:let|lets|letting) go of", "release, close"],
  ["perish\\w*|condemn\\w*", "stop, exit, mark as"],
  ["belongs? into", "belongs in"],
  ["must be of:", "must be one of:"],
  ["under way", "in progress"],
  ["of (?:its|their|your|his) own(?=[^\\w\\s]|$| that| which)", "its own"],
  ["(?<!there )(?:is|are|was|were) no (?!longer|more)[a-z]+", "is not a"],
  ["told", "reported, said"],
  ["taken up|takes? (?:it |them )?up again", "adopted, resumed"],
  ["by itself", "automatically, separately"],
  ["and the like", "(nothing)"],
  ["(?<=, )else", "otherwise"],
  ["reckon\\w*", "count, compute"],
].map(([pattern, instead]) => ({
  regex: new RegExp(`(?<![\\w-])(?:${pattern.replaceAll(" ", "[\\s*/#]+")})(?![\\w-])`, "gi"),
  instead,
}));

/** Lines of the form "12: "anew": write again". */
export function avoidedWords(name, text) {
  const prose = name.endsWith(".md") ? proseOfMarkdown(text) : proseOfCode(name, text);
  return avoided.flatMap(({ regex, instead }) =>
    [...prose.matchAll(regex)].map(({ 0: found, index }) => {
      const line = text.slice(0, index).split("\n").length;
      return `${line}: "${found.replaceAll(/\s+/g, " ")}": write ${instead}`;
    }),
  );
}

/** Without code and without the tables that the code generates. Offsets stay the same. */
function proseOfMarkdown(text) {
  return text
    .replaceAll(/<!-- (?:settings|routes) -->[^]*?<!-- end -->/g, blank)
    .replaceAll(/^```[^]*?^```$/gm, blank)
    .replaceAll(/`[^`\n]+`/g, blank);
}

/** Only comments and strings. Offsets stay the same. */
function proseOfCode(name, text) {
  const parts = name.endsWith(".py")
    ? /"""[^]*?"""|#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/g
    : /\/\*[^]*?\*\/|\/\/[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`/g;
  let prose = "";
  for (const { 0: part, index } of text.matchAll(parts))
    prose += blank(text.slice(prose.length, index)) + part;
  return prose;
}

function blank(part) {
  return part.replaceAll(/[^\n]/g, " ");
}
