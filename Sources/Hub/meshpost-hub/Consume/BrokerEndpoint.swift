// SPDX-License-Identifier: MIT

import HTTP
import Hub
import MQTT

/// A broker's address in the configuration.
struct BrokerEndpoint: Sendable {
  let address: BrokerAddress
  /// The address without anything secret.
  var shown: String { "\(address.host) port \(address.port)" }

  /// The brokers of a configuration; throws for an invalid address.
  static func all(_ settings: ConsumeSettings) throws(HubConfiguration.Failure) -> [BrokerEndpoint] {
    var places: [BrokerEndpoint] = []
    for url in settings.urls {
      guard let address = BrokerAddress(url) else {
        throw HubConfiguration.Failure(
          description: "consume.url: expected mqtt://HOST, mqtts://HOST, ws://HOST/PATH or wss://HOST/PATH")
      }
      let isSecret = settings.user != nil || settings.passwordFile != nil
      if isSecret, !address.tls, !HTTPEndpoint.isThisMachine(address.host) {
        HubLog.write(.warning, "consume: the password is sent over the network unencrypted: use mqtts://")
      }
      places.append(BrokerEndpoint(address: address))
    }
    return places
  }
}
