// node's own HTTP client on a unix socket, with persistent connections.
'use strict'

const http = require('node:http')
const { cases, poke, same, socketPath } = require('./report.js')

const key = '/1.0/config/user.foo'

function ask(path, { method = 'GET', agent, body, headers } = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request({ socketPath, path, method, agent, headers }, (answer) => {
      let text = ''
      answer.on('data', (part) => (text += part))
      answer.on('end', () => resolve({ status: answer.statusCode, text, reused: request.reusedSocket }))
      answer.on('error', reject)
    })
    request.on('error', reject)
    if (Array.isArray(body)) for (const part of body) request.write(part)
    request.end(Array.isArray(body) ? undefined : body)
  })
}

async function kept() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
  const seen = []
  for (let number = 0; number < 20; number++) seen.push(await ask(key, { agent }))
  same([...new Set(seen.map((one) => one.text))], ['bar'])
  same(seen.filter((one) => one.reused).length, 19)
}

async function crowd() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 })
  const seen = await Promise.all(Array.from({ length: 64 }, () => ask(key, { agent })))
  same([...new Set(seen.map((one) => one.text))], ['bar'])
}

async function rested() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
  await ask(key, { agent })
  await new Promise((resolve) => setTimeout(resolve, 4000))
  same((await ask(key, { agent })).text, 'bar')
}

function stream() {
  return new Promise((resolve, reject) => {
    const request = http.get({ socketPath, path: '/1.0/events' }, (answer) => {
      poke('user.node')
      let text = ''
      answer.on('data', (part) => {
        text += part
        if (text.includes('user.node')) resolve(request.destroy())
      })
      answer.on('end', () => reject(new Error('the stream ends')))
    })
    request.on('error', reject)
  })
}

cases([
  ['a key', async () => same((await ask(key)).text, 'bar')],
  ['a key that is not there', async () => same((await ask('/1.0/config/user.none')).status, 404)],
  ['20 keys on one connection', kept],
  ['64 keys on 16 connections', crowd],
  ['a connection that rested for 4 s', rested],
  ['PATCH with a length', async () => {
    same((await ask('/1.0', { method: 'PATCH', body: '{"state":"Ready"}' })).status, 200)
  }],
  ['PATCH in chunks', async () => {
    const body = ['{"state":', '"Started"}']
    same((await ask('/1.0', { method: 'PATCH', body })).status, 200)
  }],
  ['HEAD has no body', async () => same((await ask(key, { method: 'HEAD' })).text, '')],
  ['events come as they happen', stream],
])
