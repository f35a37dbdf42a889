// The rollout browser. All text comes from a model: it is only ever written through textContent.
"use strict";

(async function () {
  const byId = (id) => document.getElementById(id);
  const PER_PAGE = 25;

  async function unpack(element) {
    const binary = atob(element.textContent.trim());
    const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function element(tag, text, className) {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    if (className) node.className = className;
    return node;
  }

  if (typeof DecompressionStream === "undefined") {
    byId("message").textContent =
      "This browser cannot unpack the rollouts (it lacks DecompressionStream); any browser released since 2023 can.";
    return;
  }

  const index = await unpack(byId("index"));
  const total = index.row.length;
  const chunks = new Map(); // the texts, unpacked when they are first looked at
  let found = [];
  let page = 0;
  let selected = -1;
  let searching = 0;

  async function textsOf(i) {
    const chunk = Math.floor(i / index.chunk);
    if (!chunks.has(chunk)) chunks.set(chunk, unpack(byId("texts-" + chunk)));
    return (await chunks.get(chunk))[i % index.chunk];
  }

  const number = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  const digits = (value, places) => (value === null ? "–" : value.toFixed(places));

  function within(value, low, high) {
    if (low === null && high === null) return true;
    return value !== null && (low === null || value >= low) && (high === null || value <= high);
  }

  // The filters live in the address: a link shows a colleague the same rollouts, and a page that loads again keeps them.
  const controls = Array.from(document.querySelectorAll(".filters select, .filters input"));
  function remember() {
    const set = controls.filter((node) => node.value !== "" && node.value !== "file");
    const text = new URLSearchParams(set.map((node) => [node.id.slice(2), node.value])).toString();
    if (text !== location.hash.slice(1) && (text || location.hash.includes("="))) location.replace("#" + text);
  }
  function recall() {
    if (!location.hash.includes("=")) return;
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      const node = byId("f-" + name);
      if (node && controls.includes(node)) node.value = value;
    }
  }

  async function apply() {
    const turn = ++searching;
    remember();
    const group = byId("f-group").value;
    const status = byId("f-status").value;
    const correct = byId("f-correct").value;
    const limits = ["reward-min", "reward-max", "confidence-min", "confidence-max"].map((name) => number("f-" + name));
    const needle = byId("f-text").value.toLowerCase();
    let rows = [];
    for (let i = 0; i < total; i++) {
      if (group !== "" && index.group[i] !== Number(group)) continue;
      if (status !== "" && index.status[i] !== Number(status)) continue;
      if (correct !== "" && (correct === "right") !== (index.correct[i] === 1)) continue;
      if (!within(index.reward[i], limits[0], limits[1])) continue;
      if (!within(index.confidence[i], limits[2], limits[3])) continue;
      rows.push(i);
    }
    if (needle !== "") {
      const hits = [];
      for (let k = 0; k < rows.length; k++) {
        const texts = await textsOf(rows[k]);
        if (turn !== searching) return; // a newer filter has taken over
        if (texts.completion.toLowerCase().includes(needle) || texts.prompt.toLowerCase().includes(needle)) hits.push(rows[k]);
        if (k % 500 === 0) byId("count").textContent = "searching " + k + " of " + rows.length + " …";
      }
      rows = hits;
    }
    const value = (name) => (i) => (index[name][i] === null ? -Infinity : index[name][i]);
    const orders = {
      file: null,
      "reward-up": (a, b) => value("reward")(a) - value("reward")(b),
      "reward-down": (a, b) => value("reward")(b) - value("reward")(a),
      "confidence-down": (a, b) => value("confidence")(b) - value("confidence")(a),
      "overconfident": (a, b) => gap(b) - gap(a),
    };
    const gap = (i) => value("confidence")(i) - index.correct[i];
    const order = orders[byId("f-order").value];
    if (order) rows.sort((a, b) => order(a, b) || a - b);
    found = rows;
    page = 0;
    await draw();
  }

  async function draw() {
    const turn = searching;
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    page = Math.min(page, pages - 1);
    const shown = found.slice(page * PER_PAGE, (page + 1) * PER_PAGE);
    const texts = await Promise.all(shown.map(textsOf));
    if (turn !== searching) return;
    const body = byId("rows").tBodies[0];
    body.replaceChildren();
    shown.forEach((i, k) => {
      const tr = element("tr", null, i === selected ? "selected" : "");
      tr.tabIndex = 0;
      const status = index.statuses[index.status[i]];
      tr.append(
        element("td", index.row[i]),
        element("td", index.groups[index.group[i]], "text"),
        element("td", status, status === "ok" ? "text ok" : "text warn"),
        element("td", digits(index.reward[i], 4)),
        element("td", digits(index.confidence[i], 3)),
        element("td", index.correct[i] ? "right" : "wrong", index.correct[i] ? "text ok" : "text bad"),
        element("td", texts[k].answer, "text"),
        element("td", texts[k].reference, "text"),
      );
      const open = () => show(i, tr);
      tr.addEventListener("click", open);
      tr.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
      body.append(tr);
    });
    byId("count").textContent = found.length + " of " + total + " rollouts";
    byId("page").textContent = "page " + (page + 1) + " of " + pages;
    byId("previous").disabled = page === 0;
    byId("next").disabled = page >= pages - 1;
  }

  function marked(text, spans) {
    // Offsets count code points, as Python does; JavaScript counts UTF-16 units.
    const points = Array.from(text);
    const pre = element("pre");
    let at = 0;
    for (const [start, end, kind] of spans) {
      if (start < at || end > points.length) continue;
      pre.append(points.slice(at, start).join(""));
      const mark = element("mark", points.slice(start, end).join(""), kind);
      mark.title = kind;
      pre.append(mark);
      at = end;
    }
    pre.append(points.slice(at).join(""));
    return pre;
  }

  async function show(i, tr) {
    selected = i;
    for (const other of byId("rows").querySelectorAll("tr.selected")) other.classList.remove("selected");
    if (tr) tr.classList.add("selected");
    const texts = await textsOf(i);
    const detail = byId("detail");
    detail.replaceChildren();
    detail.hidden = false;
    detail.append(element("h3", "Rollout " + index.row[i] + " · " + index.groups[index.group[i]] + " · " + index.statuses[index.status[i]]
      + (texts.reason ? " (" + texts.reason + ")" : "")));
    const table = element("table");
    for (const [name, value] of Object.entries(texts.components)) {
      const row = element("tr");
      row.append(element("td", name), element("td", typeof value === "number" ? String(Math.round(value * 1e6) / 1e6) : value));
      table.append(row);
    }
    detail.append(element("h3", "Reward and its components"), table);
    detail.append(element("h3", "Reference"), element("pre", texts.reference));
    if (texts.prompt) detail.append(element("h3", "Prompt"), element("pre", texts.prompt));
    detail.append(element("h3", "Completion"), marked(texts.completion, texts.spans));
    detail.scrollIntoView({ block: "nearest" });
  }

  function option(select, value, text) {
    const node = element("option", text);
    node.value = value;
    select.append(node);
  }
  index.groups.forEach((name, k) => option(byId("f-group"), k, name));
  index.statuses.forEach((name, k) => option(byId("f-status"), k, name));
  for (const node of controls) node.addEventListener("change", apply);
  byId("previous").addEventListener("click", () => { page--; draw(); });
  byId("next").addEventListener("click", () => { page++; draw(); });
  byId("clear").addEventListener("click", () => { byId("filters").reset(); apply(); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  recall();
  await apply();
  document.body.dataset.ready = "yes";
})();
