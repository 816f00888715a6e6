// Connects an admin client of kafkajs with each login in SETTINGS, and prints the topics or the error of each as JSON.
import { Kafka, logLevel } from "kafkajs";

const { servers, logins } = JSON.parse(process.env.SETTINGS);

async function topicsOf({ token, ssl, ...login }) {
  if (token) login.oauthBearerProvider = async () => ({ value: token });
  const sasl = login.mechanism ? login : undefined; // Without a mechanism, the certificate is enough.
  const retry = { retries: 0 };
  const kafka = new Kafka({ brokers: servers.split(","), ssl, sasl, retry, logLevel: logLevel.NOTHING });
  const admin = kafka.admin({ retry });
  try {
    await admin.connect();
    return await admin.listTopics();
  } catch (error) {
    return String(error);
  } finally {
    await admin.disconnect();
  }
}

console.log(JSON.stringify(await Promise.all(logins.map(topicsOf))));
