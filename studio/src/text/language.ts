// The words of the language, for highlighting and completion.
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { HighlightStyle, StreamLanguage, StringStream } from "@codemirror/language";
import { tags } from "@lezer/highlight";
import { call, isExport } from "../api";

const SECTIONS = /^(?:sizes|dynamic|volatile|constants?|persistent|inputs|outputs|state)\b/;
const WORDS =
  /^(?:op|assign|transfer|loop|in|block|branch|call|return|yield|await|barrier|dep|after|before|scope|with|effect|model|fmt|graph|cache\.(?:read|write|increment|decrement|reset))\b/;
const DTYPES = /^(?:bool|bitset|(?:f|bf|i|u|t)\d+(?:e\dm\d)?(?:\w*)?)\b/;

interface State {
  isInComment: boolean;
  isAfterOp: boolean;
}

function token(stream: StringStream, state: State): string | null {
  if (state.isInComment) {
    state.isInComment = !stream.skipTo("*/");
    if (state.isInComment) stream.skipToEnd();
    else stream.match("*/");
    return "comment";
  }
  if (stream.eatSpace()) return null;
  if (stream.match("//")) return stream.skipToEnd(), "comment";
  if (stream.match("/*")) return (state.isInComment = true), "comment";
  if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
  if (stream.match(/^@\w+/)) return "meta";
  if (state.isAfterOp && stream.match(/^[A-Za-z_]\w*/)) return (state.isAfterOp = false), "operatorKeyword";
  const word = stream.match(WORDS);
  if (word) return (state.isAfterOp = (word as RegExpMatchArray)[0] === "op"), "keyword";
  if (stream.match(SECTIONS)) return "keyword";
  if (stream.match(/^(?:true|false|inf|nan)\b/)) return "atom";
  if (stream.match(DTYPES)) return "typeName";
  if (stream.match(/^(?:0x[0-9a-fA-F]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)/)) return "number";
  if (stream.match(/^>>|^\.\.|^[:<]=/)) return "operator";
  if (stream.match(/^[A-Za-z_]\w*(?=\s*=[^=])/)) return "propertyName";
  if (stream.match(/^[A-Za-z_]\w*/)) return "variableName";
  stream.next();
  return null;
}

export const oig = StreamLanguage.define<State>({
  name: "oig",
  startState: () => ({ isInComment: false, isAfterOp: false }),
  token,
  languageData: { commentTokens: { line: "//", block: { open: "/*", close: "*/" } }, closeBrackets: { brackets: ["(", "[", "{", '"'] } },
});

/** The languages that code is emitted in, near enough for colours. */
export const cFamily = StreamLanguage.define<{ isInComment: boolean }>({
  name: "c",
  startState: () => ({ isInComment: false }),
  token(stream, state) {
    if (state.isInComment) {
      state.isInComment = !stream.skipTo("*/");
      if (state.isInComment) stream.skipToEnd();
      else stream.match("*/");
      return "comment";
    }
    if (stream.eatSpace()) return null;
    if (stream.match("//")) return stream.skipToEnd(), "comment";
    if (stream.match("/*")) return (state.isInComment = true), "comment";
    if (stream.match(/^#\s*\w+/)) return "meta";
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/) || stream.match(/^'(?:[^'\\]|\\.)*'?/)) return "string";
    if (stream.match(/^(?:if|else|for|while|do|return|switch|case|break|continue|static|const|inline|extern|struct|typedef|sizeof|layout|uniform|buffer|shared|restrict|goto|default)\b/)) return "keyword";
    if (stream.match(/^(?:void|bool|char|int|float|double|size_t|u?int\d+_t|unsigned|signed|long|short|half|uint|u?vec\d|__\w+__)\b/)) return "typeName";
    if (stream.match(/^(?:0x[0-9a-fA-F]+|\d[\d.]*(?:[eE][+-]?\d+)?)[fFuUlL]*/)) return "number";
    if (stream.match(/^[A-Za-z_]\w*(?=\()/)) return "operatorKeyword";
    if (stream.match(/^[A-Za-z_]\w*/)) return "variableName";
    stream.next();
    return null;
  },
});

const VHDL_WORDS =
  /^(?:library|use|entity|is|port|generic|map|end|architecture|of|begin|signal|constant|variable|type|subtype|function|return|process|if|then|elsif|else|case|when|others|for|in|out|inout|to|downto|loop|generate|and|or|not|xor|array|record|package|body|work|all|wait|until|null|range)\b/i;

export const vhdl = StreamLanguage.define<null>({
  name: "vhdl",
  startState: () => null,
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match("--")) return stream.skipToEnd(), "comment";
    if (stream.match(/^(?:[xXbB])?"[^"]*"?/) || stream.match(/^'.'/)) return "string";
    if (stream.match(VHDL_WORDS)) return "keyword";
    if (stream.match(/^(?:std_logic(?:_vector)?|unsigned|signed|integer|natural|positive|boolean)\b/i)) return "typeName";
    if (stream.match(/^\d[\d_]*/)) return "number";
    if (stream.match(/^[A-Za-z]\w*(?=\s*\()/)) return "operatorKeyword";
    if (stream.match(/^[A-Za-z]\w*/)) return "variableName";
    stream.next();
    return null;
  },
});

export const colours = HighlightStyle.define([
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
  { tag: tags.keyword, color: "var(--code-keyword)" },
  { tag: tags.operatorKeyword, color: "var(--code-op)", fontWeight: "600" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: [tags.number, tags.atom], color: "var(--code-number)" },
  { tag: tags.typeName, color: "var(--code-type)" },
  { tag: tags.meta, color: "var(--code-meta)" },
  { tag: tags.propertyName, color: "var(--code-param)" },
  { tag: tags.operator, color: "var(--faint)" },
]);

interface Entry {
  label: string;
  kind: string;
  detail: string;
  info: string;
  insert: string;
  from: number;
}

const KINDS: Record<string, string> = {
  op: "function", parameter: "property", variable: "variable", size: "constant", tensor: "constant", block: "class", dtype: "type",
};

/** What the language service knows for a place. */
export async function completions(context: CompletionContext): Promise<CompletionResult | null> {
  const word = context.matchBefore(/[\w.]*/);
  const typed = context.state.sliceDoc(Math.max(0, context.pos - 1), context.pos);
  if (isExport || (!context.explicit && word?.from === word?.to && !/[("@,\s]/.test(typed))) return null;
  if (!context.explicit && /\s/.test(typed) && !/\bop\s$/.test(context.state.sliceDoc(Math.max(0, context.pos - 4), context.pos))) return null;
  const found = await call<{ entries: Entry[] }>("complete", { index: context.pos, text: context.state.doc.toString() });
  const first = found.entries[0];
  if (!first || context.aborted) return null;
  return {
    from: first.from,
    options: found.entries.filter((one) => one.from === first.from).map((one): Completion => ({
      label: one.label, detail: one.detail.slice(0, 70), info: one.info || undefined, apply: one.insert, type: KINDS[one.kind] ?? "keyword",
    })),
    validFor: /^[\w.]*$/,
  };
}
