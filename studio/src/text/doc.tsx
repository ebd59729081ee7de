// Documentation as the language service writes it: paragraphs, code between backticks, and fenced code.
import type { ComponentChildren } from "preact";

function inline(text: string): ComponentChildren[] {
  return text.split("`").map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part.replaceAll("**", "")));
}

/** Names come from graphs and models: all of it becomes text, none of it elements. */
export function Doc({ text }: { text: string }) {
  const parts = text.split(/^```\w*\n([\s\S]*?)^```$/m);
  return (
    <div class="doc">
      {parts.flatMap((part, at) => (at % 2
        ? [<pre key={at}>{part.trimEnd()}</pre>]
        : part.split(/\n\s*\n|\n(?=[*-] )/).filter((one) => one.trim()).map((one, number) => (
          <p key={`${at} ${number}`}>{inline(one.trim().replace(/\s*\n\s*/g, " "))}</p>
        ))))}
    </div>
  );
}
