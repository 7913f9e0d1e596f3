// Changes to the document that leave alone what is right already, so that focus and selection stay.

export function id(name) {
  return document.getElementById(name);
}

export function text(node, wanted) {
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function show(node, wanted) {
  if (node.hidden === wanted) node.hidden = !wanted;
}

export function attribute(node, name, wanted) {
  if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
}

/** A copy of what a template has. */
export function copy(template) {
  return id(template).content.firstElementChild.cloneNode(true);
}

/**
 * Makes the children of a parent those of the items, in their order. A child of an item with the same key stays, and is filled anew.
 */
export function list(parent, items, key, make, fill) {
  const wanted = new Set(items.map((item, index) => String(key(item, index))));
  const had = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const focused = document.activeElement;
  const lost = focused !== document.body && parent.contains(focused);
  // First, so that what stays is not moved past it: an element that is moved loses the focus.
  had.forEach((child, name) => wanted.has(name) || child.remove());
  let place = parent.firstElementChild;
  const unplaced = document.createDocumentFragment();
  items.forEach((item, index) => {
    const name = String(key(item, index));
    let child = had.get(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    fill(child, item, index);
    if (child === place) {
      place = place.nextElementSibling;
    } else if (place) {
      parent.insertBefore(child, place);
    } else {
      unplaced.append(child);
    }
  });
  // Many new ones cost one change of the document.
  parent.append(unplaced);
  if (lost && document.activeElement !== focused) {
    if (focused.isConnected) focused.focus({ preventScroll: true });
    return false;
  }
  return true;
}
