// A member of a consumer group (KIP-848) with @platformatic/kafka: prints the value of each record that it reads, one a
// line, and leaves the group when its standard input ends.

import { Consumer, stringDeserializers } from '@platformatic/kafka'

const { servers, group, topic } = JSON.parse(process.env.SETTINGS)

const consumer = new Consumer({
  clientId: 'node',
  groupId: group,
  groupProtocol: 'consumer',
  bootstrapBrokers: servers.split(','),
  deserializers: stringDeserializers,
  maxWaitTime: 100,
  retryDelay: 100
})
const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: true })
stream.on('data', message => console.log(message.value))
process.stdin.on('end', async () => {
  await stream.close()
  await consumer.close(true)
})
process.stdin.resume()
