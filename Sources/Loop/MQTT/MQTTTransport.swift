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
      let settings = WebSocket.Settings(host: host, port: port, target: path, subprotocol: "mqtt", proxy: proxy)
      let socket = WebSocket(settings, tls: tls, meter: meter, on: loop)
      do throws(WebSocketFailure) {
        try await socket.open()
      } catch {
        throw .early(error.description)
      }
      return WebSocketStream(socket)
    }
    let socket: Int32
    meter?.attempts()
    do throws(Connector.Failure) {
      socket = try await loop.connect(host: host, port: port, through: proxy, timeout: Self.connectLimit)
    } catch {
      meter?.failed()
      throw .unreachable(error.description)
    }
    let plain = SocketStream(socket, meter: meter, on: loop)
    guard let tls else { return plain }
    guard let secure = TLSStream(plain, tls, host: host) else { throw .unreachable("TLS is not set up") }
    return secure
  }
}
