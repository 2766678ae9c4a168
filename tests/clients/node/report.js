// Prints a line for each case: "NAME: ok", or what was observed instead.
'use strict'

const { spawn } = require('node:child_process')

const socketPath = process.env.MOTE_DEVLXD
const patience = 30_000

function same(seen, wanted) {
  const [is, should] = [JSON.stringify(seen), JSON.stringify(wanted)]
  if (is !== should) throw new Error(`it is ${is}, not ${should}`)
}

// Runs cases one after another. The error with which a promise is rejected is what was observed.
async function cases(list) {
  for (const [name, run] of list) {
    let clock
    const late = new Promise((_, reject) => {
      clock = setTimeout(() => reject(new Error(`it does not end in ${patience / 1000} s`)), patience)
    })
    let seen = 'ok'
    await Promise.race([run(), late]).catch((error) => (seen = error.message))
    clearTimeout(clock)
    console.log(`${name}: ${seen.replace(/\s+/g, ' ')}`)
  }
  process.exit(0)
}

// Makes the host change a key repeatedly, because the agent may not have registered the listener
// yet.
function poke(key, times = 10) {
  for (let number = 0; number < times; number++) {
    setTimeout(() => spawn(process.env.MOTE_POKE, [key, String(number)]), 300 * number).unref()
  }
}

module.exports = { cases, poke, same, socketPath }
