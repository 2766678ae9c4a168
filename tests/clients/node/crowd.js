// Idle and silent connections. Another client must be served next to them.
'use strict'

const net = require('node:net')
const { cases, socketPath } = require('./report.js')

const many = Number(process.env.MOTE_CROWD)
const limit = 1000 * process.env.MOTE_PATIENCE // milliseconds
const request = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time))

// Opens a connection and sends this text. `answered` resolves with the first data.
function open(text) {
  const socket = net.connect(socketPath)
  socket.on('error', () => {})
  const answered = new Promise((resolve, reject) => {
    socket.on('data', resolve)
    socket.on('close', () => reject(new Error('another client is hung up on')))
  })
  answered.catch(() => {})
  if (text) socket.write(text)
  return { socket, answered }
}

// Sends three requests while the other connections are open. Each must be answered in time.
async function served() {
  for (let number = 0; number < 3; number++) {
    const { socket, answered } = open(request)
    const late = pause(limit).then(() => {
      throw new Error('another client waits too long')
    })
    late.catch(() => {})
    await Promise.race([answered, late])
    socket.destroy()
    await pause(200)
  }
}

async function beside(text) {
  const crowd = Array.from({ length: many }, () => open(text))
  await pause(1000)
  await served()
  for (const { socket } of crowd) socket.destroy()
}

cases([
  ['another client is served beside connections that were answered and rest', () => beside(request)],
  ['another client is served beside connections that say nothing', () => beside('')],
  ['another client is served beside connections that stop in a head', () => beside(request.slice(0, 20))],
])
