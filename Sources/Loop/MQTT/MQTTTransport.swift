// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import ProxyTunnel
import Sockets

/// Opens streams to one broker: TCP, TLS or a WebSocket, through a proxy if there is one.
struct MQTTTransport {
  private static let connectLimit: Duration = .seconds(15)

  let host: String
  let port: UInt16
  /// The path of the WebSocket that carries MQTT; `nil`: plain TCP or TLS.
  let path: String?
  let tls: TLSContext?
  let proxy: TunnelSettings?
  let meter: TrafficMeter?

  func open(on loop: EventLoop) async throws(MQTTFailure) -> any ByteStream {
    if let path {
      // A broker may put any number of packets into one message, and a packet into several (MQTT 5.0 § 6).
      let settings = WebSocket.Settings(
        host: host, port: port, target: path, subprotocol: "mqtt", proxy: proxy, maxMessage: .max)
      let socket = WebSocket(settings, tls: tls, meter: meter, on: loop)
      do throws(WebSocketFailure) {
        try await socket.open()
      } catch {
        throw .early(error.description)
      }
      return WebSocketStream(socket)
    }
    do throws(Connector.Failure) {
      return try await loop.stream(
        to: host, port, tls: tls, proxy: proxy, meter: meter, timeout: Self.connectLimit)
    } catch {
      throw .unreachable(error.description)
    }
  }
}
