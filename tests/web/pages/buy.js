// A click is one call. ?item=, ?path= and ?retries= choose its request.
import { idemFetch } from '/idem.js';

const said = new URLSearchParams(location.search);
const told = (text) => {
  const line = document.createElement('li');
  line.textContent = text;
  document.querySelector('#answers').append(line);
};

document.querySelector('#buy').addEventListener('click', async () => {
  try {
    const response = await idemFetch(said.get('path') ?? '/orders', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ item: said.get('item'), amount: 1 }),
      retries: Number(said.get('retries') ?? 6),
    });
    const { attempts, replayed, final } = response.idem;
    const { id } = await response.json();
    told(JSON.stringify({ status: response.status, id, attempts, replayed, final }));
  } catch (error) {
    told(JSON.stringify({ error: error.name }));
  }
});
document.documentElement.dataset.ready = 'yes';
