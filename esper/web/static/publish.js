// The form that publishes a command. The token stays in this page's memory, and goes nowhere but into the header.

import { el, setText } from "./dom.js";

export async function publishForm(main) {
  const told = await fetch("/api/commands").then((answer) => answer.json()).catch(() => null);
  if (told === null) {
    main.append(el("p", { class: "missed" }, "The server did not say what can be published here: load the page again."));
    return;
  }
  const { read_only: readOnly, operations } = told;
  if (readOnly) {
    main.append(el("p", { class: "aside" }, "This page only shows. Started with --token-file, esper web can publish commands."));
    return;
  }
  const token = el("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const choice = el("select", { id: "operation" }, ...operations.map((each) => el("option", { value: each.name }, each.name.replaceAll("_", " "))));
  const does = el("p", { class: "aside" });
  const fields = el("div", { class: "fields" });
  const outcome = el("p", { role: "status" });
  const button = el("button", { type: "submit" }, "Publish");
  let asked = "";
  const reset = () => {
    asked = "";
    setText(button, "Publish");
  };
  const chosen = () => operations.find((each) => each.name === choice.value);
  const build = () => {
    reset();
    setText(does, chosen().does);
    const named = chosen().arguments.map((each) => field(each.name, each.kind, each.required));
    fields.replaceChildren(...named, ...(chosen().numbers ? [field("other numbers", "numbers", false)] : []));
  };
  const submit = async (event) => {
    event.preventDefault();
    try {
      const command = { operation: choice.value, arguments: given(chosen(), fields) };
      if (asked !== JSON.stringify(command)) {
        asked = JSON.stringify(command);
        setText(button, "Yes, publish");
        setText(outcome, `${choice.value.replaceAll("_", " ")} ${Object.entries(command.arguments).map(([name, value]) => `${name}=${value}`).join(", ")}: sure?`);
        return;
      }
      reset();
      setText(outcome, await send(command, token.value));
    } catch (error) {
      reset();
      setText(outcome, error.message);
    }
  };
  choice.addEventListener("change", build);
  build();
  const form = el("form", { onsubmit: submit, oninput: reset },
    labelled("token", token), labelled("operation", choice), does, fields, button, outcome);
  main.append(el("section", { class: "publishing" }, el("h2", {}, "Publish a command"), form));
}

async function send(command, token) {
  const answer = await fetch("/api/commands", {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(command),
  });
  const said = await answer.json().catch(() => ({ error: `the server answered ${answer.status} and no more` }));
  return answer.ok ? `published ${said.command_id} as ${said.entry_id}; its answers come in above, among the newest decisions` : said.error;
}

function field(name, kind, required) {
  const id = `field-${name.replaceAll(" ", "-")}`;
  const hint = { numbers: "rank=4, auto=1", texts: "one, another" }[kind] ?? "";
  const type = kind === "number" || kind === "integer" ? "number" : "text";
  return labelled(name, el("input", { id, type, step: kind === "number" ? "any" : null, placeholder: hint, "data-name": name, "data-kind": kind, required }));
}

function labelled(name, input) {
  return el("div", { class: "field" }, el("label", { for: input.id }, name), input);
}

function given(operation, fields) {
  const found = {};
  for (const input of fields.querySelectorAll("input")) {
    const { name, kind } = input.dataset;
    if (input.value === "") continue;
    if (kind === "numbers") Object.assign(found, numbers(input.value));
    else if (kind === "texts") found[name] = input.value.split(",").map((each) => each.trim());
    else found[name] = kind === "text" ? input.value : Number(input.value);
  }
  return found;
}

function numbers(text) {
  const found = {};
  for (const part of text.split(",")) {
    const [name, value, ...rest] = part.split("=").map((each) => each.trim());
    if (!name || value === undefined || value === "" || rest.length || Number.isNaN(Number(value))) throw new Error(`other numbers: ${part.trim()} is no name=number`);
    found[name] = Number(value);
  }
  return found;
}
