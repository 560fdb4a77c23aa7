// The page: sections in their order, redrawn when another axis is chosen.

const data = JSON.parse(document.getElementById("data").textContent);
const state = { axis: "steps", log: false };

/** Names runs apart: by their directories' names, with a number where two are equal. */
function labelRuns(runs) {
  runs.forEach((run, i) => {
    const equal = runs.filter((r) => r.name === run.name);
    run.label = equal.length > 1 ? `${run.name} (${i + 1})` : run.name;
  });
}

function controls() {
  const button = (text, pressed, act) => {
    const b = make("button", { type: "button", "aria-pressed": String(pressed) }, text);
    b.addEventListener("click", () => {
      act();
      render();
    });
    return b;
  };
  return make("div", { class: "row controls" }, make("span", { class: "soft" }, "by"),
    ...Object.keys(axes).map((name) => button(name, state.axis === name, () => (state.axis = name))),
    button("log loss", state.log, () => (state.log = !state.log)));
}

function section(title, content) {
  return content && content.childElementCount !== 0 ? [make("h2", {}, title), content] : [];
}

function render() {
  const runs = data.runs, points = Math.max(1, ...runs.map((r) => r.history.steps_per_point));
  const names = runs.length ? runs.map((r) => r.label).join(", ") : "scores";
  document.title = `${names} – ltrain report`;
  const parts = [make("h1", {}, names)];
  if (runs.length) {
    const average = points > 1 ? ` A point of a curve stands for up to ${whole(points)} steps: their mean, with least and most around it.` : "";
    parts.push(make("p", { class: "plain soft" }, `A dotted line across a chart is a resume, a red one a skipped step.${average}`), showFigures(runs), controls(),
      ...section("Training", showCurves(runs, state)), ...section("Loss by position", showPositions(runs)), ...section("Memory", showMemory(runs)),
      ...section("What compute waited for", showStalls(runs, state)), ...section("Traced steps", showTraces(runs)));
  }
  parts.push(...section("Scores", showScores(data.scores)));
  if (runs.length) parts.push(...section("What happened", showEvents(runs)), ...section("Settings", showSettings(runs)));
  document.querySelector("main").replaceChildren(...parts);
}

labelRuns(data.runs);
render();
