// Makes a page live: when something happens, the page is loaded again, and the parts marked `data-live` are replaced.
// Without this script, the page is complete but static.
(() => {
  "use strict";
  const note = document.getElementById("live");
  if (!note) return;

  const shown = note.cloneNode(true);
  const pause = document.createElement("button");
  pause.type = "button";
  pause.id = "pause";
  note.after(pause);

  // Milliseconds: the minimum between two reloads, the interval of reloads without a signal, and the delay before a retry.
  const LEAST = 1000, IDLE = 10000, AGAIN = 3000;
  let stream = null, timer = 0, loading = false, pending = false, held = false, lost = false;

  // A page that shows a past state (`data-still`) stays unchanged, unless it is still being computed (`data-again`).
  const isStill = () => document.querySelector("[data-still]") !== null;
  const isAwaited = () => document.querySelector("[data-again]") !== null;

  const say = (words) => {
    note.setAttribute("role", "status");
    note.textContent = words;
  };

  const wanted = () => !held && !document.hidden;

  const later = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(load, ms);
  };

  const next = () => {
    if (isAwaited()) later(LEAST);
    else if (!isStill()) later(IDLE);
  };

  // Parts with selected text or a field being edited are not replaced.
  const inUse = (part) => {
    const selection = document.getSelection();
    const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    const active = document.activeElement;
    return selects || (part.contains(active) && active.matches("input, select, textarea"));
  };

  // Next to processor times, which are marked `data-grows`, the usage since the last load is shown in percent.
  const counts = (root) => {
    const found = new Map();
    for (const it of root.querySelectorAll("[data-grows]")) found.set(it.dataset.grows, Number(it.dataset.count));
    return found;
  };
  let before = counts(document), at = performance.now();

  const rates = (root) => {
    const now = performance.now(), seconds = (now - at) / 1000;
    for (const it of root.querySelectorAll("[data-grows]")) {
      const rate = (Number(it.dataset.count) - before.get(it.dataset.grows)) / seconds;
      if (!(rate > 0)) continue;
      it.append(` (${Math.round(rate / 10)} %)`);
    }
    before = counts(root);
    at = now;
  };

  const put = (next) => {
    rates(next);
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = next.getElementById(part.id);
      if (!other || part.innerHTML === other.innerHTML || inUse(part)) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      const places = focused ? [...part.querySelectorAll("a, summary, [tabindex]")].indexOf(focused) : -1;
      const scrolled = [...part.querySelectorAll(".wide, pre")].map((it) => [it.scrollLeft, it.scrollTop]);
      const open = new Set([...part.querySelectorAll("details[open][id]")].map((it) => it.id));
      part.replaceChildren(...other.childNodes);
      for (const it of part.querySelectorAll("details[id]")) it.open = it.open || open.has(it.id);
      [...part.querySelectorAll(".wide, pre")].forEach((it, place) => {
        if (scrolled[place]) [it.scrollLeft, it.scrollTop] = scrolled[place];
      });
      if (places >= 0) part.querySelectorAll("a, summary, [tabindex]")[places]?.focus({ preventScroll: true });
    }
    const stamp = next.getElementById("live");
    if (stamp) shown.replaceChildren(...stamp.childNodes);
    localise(document);
    lost = false;
    note.replaceChildren(...shown.cloneNode(true).childNodes);
  };

  const load = async () => {
    if (loading) pending = true;
    if (loading || !wanted()) return;
    loading = true;
    clearTimeout(timer);
    try {
      const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin", redirect: "manual" });
      if (answer.status === 401) return location.reload();
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      // The coordinator cannot show this past state yet: it is busy with other such requests, or is still reading the journal.
      const wait = page.querySelector(answer.ok ? "[data-again]" : "[data-busy]");
      if (isStill() && wait) {
        lost = false;
        say(wait.textContent);
        return later(answer.ok ? LEAST : AGAIN);
      }
      if (!answer.ok) throw new Error(answer.status);
      // The page that was waited for has a different structure, so it is loaded as a whole.
      if (isAwaited() && !wait) return location.reload();
      put(page);
      if (!stream) listen();
      next();
    } catch {
      gone();
    } finally {
      loading = false;
      if (pending) later(LEAST / 10);
      pending = false;
    }
  };

  const gone = () => {
    if (!lost) say("Not connected: this page is out of date. Retrying.");
    lost = true;
    stream?.close();
    stream = null;
    if (wanted()) later(AGAIN);
  };

  const listen = () => {
    stream?.close();
    stream = null;
    if (isStill()) return;
    stream = new EventSource("/page/changes");
    stream.addEventListener("changed", () => later(LEAST / 10));
    stream.onerror = gone;
  };

  const begin = () => {
    clearTimeout(timer);
    stream?.close();
    stream = null;
    pause.textContent = held ? "Resume" : "Pause";
    if (held) say("Paused");
    if (wanted()) load();
  };

  // Times are shown in UTC; the title of each has the local time.
  const localise = (root) => {
    for (const it of root.querySelectorAll("time[datetime]")) {
      it.title = `${it.getAttribute("datetime")}\n${new Date(it.dateTime).toLocaleString()} local time`;
    }
  };

  // Adds a slider to a number field. The page is loaded again once the slider has stopped moving.
  const slide = (field) => {
    const slider = document.createElement("input");
    slider.type = "range";
    slider.setAttribute("aria-label", field.labels[0].textContent);
    for (const it of ["min", "max", "value"]) slider[it] = field[it];
    slider.addEventListener("input", () => {
      field.value = slider.value;
      history.replaceState(null, "", `${location.pathname}?${field.name}=${field.value}`);
      later(LEAST / 10);
    });
    field.addEventListener("input", () => slider.value = field.value);
    field.form.append(slider);
  };

  pause.addEventListener("click", () => {
    held = !held;
    begin();
  });
  document.addEventListener("visibilitychange", begin);
  localise(document);
  pause.textContent = "Pause";
  pause.hidden = isStill();
  document.querySelectorAll("[data-slides]").forEach(slide);
  listen();
  next();
})();
