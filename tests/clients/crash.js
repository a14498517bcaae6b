// Works on jobs through jackd until the server ends: crash.js HOST PORT LOG SEED NUMBER PACKAGE.
//
// Logs each request before it is sent and each reply after it arrived, one unbuffered line each, which begins with the
// nanoseconds of CLOCK_MONOTONIC. Exits with 0 when the server closes the connection, and with an error otherwise.

const fs = require('fs')

const [host, port, path, seed, number, jackd] = process.argv.slice(2)
const JackdClient = require(jackd)

const TUBES = ['shared-0', 'shared-1']
const FOR_EVER_S = 1000000
const HELD_MAX = 4
const PATIENCE_MS = 60000

const log = fs.openSync(path, 'a')
let state = (Number(seed) * 7919 + Number(number) * 104729 + 1) >>> 0
let bodies = 0
let lines = 0

// A linear congruential generator, whose higher bits are the better ones.
function below(end) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0
  return Math.floor((state / 4294967296) * end)
}

function note(...words) {
  lines += 1
  fs.writeSync(log, `${process.hrtime.bigint()} ${words.join(' ')}\n`)
}

async function put(client) {
  bodies += 1
  const body = `jackd-${seed}-${number}-${bodies}`
  await client.use(TUBES[below(2)])
  note('putting', body)
  const id = await client.put(body, { priority: below(3), ttr: FOR_EVER_S })
  note('inserted', id, body)
}

async function reserve(client, held) {
  note('reserving')
  try {
    const job = await client.reserveWithTimeout(below(2))
    note('reserved', job.id, job.payload)
    held.push(job.id)
  } catch (error) {
    if (error.message !== 'TIMED_OUT') throw error
    note('timed-out')
  }
}

async function finish(client, held) {
  const id = held.shift()
  if (below(4) > 0) {
    note('deleting', id)
    await client.delete(id)
    note('deleted', id)
  } else {
    note('releasing', id)
    await client.release(id, { priority: 1 })
    note('released', id)
  }
}

async function work(client, held) {
  for (const tube of TUBES) await client.watch(tube)
  await client.ignore('default')
  for (let steps = 20 + below(200); steps > 0; steps -= 1) {
    const choice = below(10)
    if (choice < 4) {
      await put(client)
    } else if ((choice < 7 && held.length < HELD_MAX) || held.length === 0) {
      await reserve(client, held)
    } else {
      await finish(client, held)
    }
  }
}

// Works for a while, then closes with jobs still reserved, which go back. jackd never settles a pending command when the
// connection ends, hence the race with its end.
async function connection() {
  const held = []
  const client = new JackdClient()
  const ended = new Promise(resolve => {
    client.on('error', () => {})
    client.on('close', () => resolve('ended'))
  })
  await client.connect({ host, port: Number(port) })
  const how = await Promise.race([work(client, held).then(() => 'done'), ended])
  for (const id of held) note('parting', id)
  if (how === 'done') await client.quit()
  await ended
  return how
}

async function main() {
  while ((await connection()) === 'done') {}
}

// A reply that never comes is a failure.
let before = -1
setInterval(() => {
  if (lines === before) {
    console.error('no reply for a minute')
    process.exit(1)
  }
  before = lines
}, PATIENCE_MS)

const GONE = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ERR_STREAM_DESTROYED', 'ERR_STREAM_WRITE_AFTER_END']

main().then(
  () => process.exit(0),
  error => {
    if (GONE.includes(error.code)) process.exit(0)
    console.error(error)
    process.exit(1)
  }
)
