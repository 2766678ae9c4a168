// node's ws on devlxd's events. Violations of RFC 6455 must be answered with close code 1002.
'use strict'

const WebSocket = require('ws')
const { cases, poke, same, socketPath } = require('./report.js')

function open(options = { perMessageDeflate: false }) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`ws+unix:${socketPath}:/1.0/events`, options)
    socket.on('open', () => resolve(socket))
    socket.on('error', reject)
  })
}

async function event() {
  const socket = await open()
  poke('user.ws')
  await new Promise((resolve) => {
    socket.on('message', (text) => {
      if (JSON.parse(text).metadata.key === 'user.ws') resolve()
    })
  })
  socket.terminate()
}

async function ping(options) {
  const socket = await open(options)
  const answered = new Promise((resolve) => socket.on('pong', resolve))
  socket.ping('hello')
  same((await answered).toString(), 'hello')
  socket.terminate()
}

function closed(socket) {
  return new Promise((resolve) => socket.on('close', resolve))
}

async function closes() {
  const socket = await open()
  const code = closed(socket)
  socket.close(4321, 'done')
  same(await code, 4321)
}

async function violates(frame) {
  const socket = await open()
  const code = closed(socket)
  socket._socket.write(Buffer.from(frame))
  same(await code, 1002)
}

const mask = [0, 0, 0, 0]

cases([
  ['an event arrives', event],
  ['a ping is answered', () => ping()],
  ['an offer of compression does no harm', () => ping({ perMessageDeflate: true })],
  ['a close is echoed with its code', closes],
  ['a frame without a mask is answered by 1002', () => violates([0x81, 0x02, 0x68, 0x69])],
  ['two reserved bits are answered by 1002', () => violates([0xb1, 0x80, ...mask])],
  ['a ping of 126 bytes is answered by 1002', () => violates([0x89, 0xfe, 0, 126, ...mask])],
  ['a close of one byte is answered by 1002', () => violates([0x88, 0x81, ...mask, 0x78])],
])
