// The pages of operators: asks for the part that the address names, with this page's half of the login.
'use strict';
const HALF = 'foretype.page';  // the playground's own: one login for both
const NAMES = ['status', 'fleet', 'experiments', 'reports', 'keys', 'usage'];
const find = (id) => document.getElementById(id);
let asked = 0;

async function show() {
  const [given, query = ''] = location.hash.slice(1).split('?');
  if (given === 'part') {
    focusPart();
    return;
  }
  const name = NAMES.includes(given) ? given : 'status';
  const turn = ++asked;
  const half = localStorage.getItem(HALF);
  const answer = await fetch(`/admin/parts/${name}?${query}`, { headers: half ? { 'x-foretype-page': half } : {} })
    .catch(() => undefined);
  const text = await answer?.text().catch(() => undefined);
  if (turn !== asked) {
    return;
  }
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === `#${name}`) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  }
  if (answer === undefined || text === undefined) {
    say('The gateway cannot be reached', 'It is tried again when the page is chosen again.');
  } else if (answer.status === 401) {
    login('');
  } else if (answer.status === 403) {
    login('This key lacks the scope admin: foretype keys create --scope admin makes one.');
  } else if (!answer.headers.get('content-type')?.startsWith('text/html')) {
    say('Not shown', `The gateway answers ${answer.status}.`);
  } else {
    // Parsed apart: nothing in it runs.
    find('part').replaceChildren(...new DOMParser().parseFromString(text, 'text/html').body.childNodes);
    find('login').hidden = true;
  }
  const head = document.querySelector('#part h1')?.textContent;
  document.title = head ? `${head} · Foretype` : 'Foretype';
}

function focusPart() {
  find('part').focus({ preventScroll: true });  // the way to the other pages stays in sight
  scrollTo(0, 0);
}

function say(head, text) {
  const [title, told] = [document.createElement('h1'), document.createElement('p')];
  [title.textContent, told.textContent] = [head, text];
  find('part').replaceChildren(title, told);
}

function login(why) {
  find('part').replaceChildren();
  find('login').hidden = false;
  find('login-error').textContent = why;
  find('token').focus();
}

find('login').addEventListener('submit', async (event) => {
  event.preventDefault();
  const answer = await fetch('/playground/login', {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ token: find('token').value }),
  }).catch(() => undefined);
  if (!answer?.ok) {
    login(answer ? 'This is not a key of this gateway.' : 'The gateway cannot be reached.');
    return;
  }
  localStorage.setItem(HALF, (await answer.json()).page);
  find('token').value = '';
  await show();
  focusPart();
});

find('part').addEventListener('submit', (event) => {
  event.preventDefault();
  const fields = [...new FormData(event.target)].filter(([, value]) => value);
  location.hash = `${event.target.dataset.part}?${new URLSearchParams(fields)}`;
});

addEventListener('hashchange', () => show().then(focusPart));
show();
