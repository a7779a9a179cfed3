// ?fetch=1 sends by fetch, ?multipart=1 as multipart, ?token=URL gets its tokens from there, ?timeout=MS limits the
// wait; ?hold= and ?retries= are guardForm's.
import { guardForm } from '/idem.js';

const said = new URLSearchParams(location.search);
const form = document.querySelector('form');
const told = (text) => {
  document.querySelector('#answers').textContent += text + '\n';
};

if (said.has('fetch')) form.action = '/fetched';
if (said.has('multipart')) form.enctype = 'multipart/form-data';
window.guard = guardForm(form, {
  tokenUrl: said.get('token') ?? '/token',
  fetch: said.has('fetch'),
  retries: Number(said.get('retries') ?? 2),
  ...(said.has('hold') && { hold: Number(said.get('hold')) }),
  ...(said.has('timeout') && { timeout: Number(said.get('timeout')) }),
  onAnswer: async (response) => told(JSON.stringify({
    status: response.status, replayed: response.idem.replayed, text: await response.text(),
  })),
  onError: (error) => told(JSON.stringify({ error: error.name })),
});
addEventListener('pageshow', ({ persisted }) => {
  document.documentElement.dataset.shown = persisted ? 'again' : 'first';
});
document.documentElement.dataset.ready = 'yes';
