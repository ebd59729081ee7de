import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import { App } from "./app";
import { failure, open, problemsOf } from "./store";
import "./style.css";

render(<App />, document.getElementById("studio") as HTMLElement);
open().catch((error: unknown) => (failure.value = problemsOf(error)));
