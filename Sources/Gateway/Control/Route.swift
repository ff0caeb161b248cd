// SPDX-License-Identifier: MIT

import HTTP
import UntrustedText

/// The requests of the control socket, each with a method and a path. Documented in docs/control-socket.md.
enum Route: String, CaseIterable {
  case status = "GET /v1/status"
  case metrics = "GET /metrics"
  case sync = "GET /v1/sync"
  case startSync = "POST /v1/sync"

  case messages = "GET /v1/messages"
  case conversations = "GET /v1/conversations"
  case markRead = "POST /v1/conversations/read"
  case mute = "POST /v1/conversations/mute"
  case live = "GET /v1/live"
  case contacts = "GET /v1/contacts"
  case channels = "GET /v1/channels"
  case readings = "GET /v1/readings"
  case radios = "GET /v1/radios"
  case journal = "GET /v1/journal"
  case events = "GET /v1/events"
  case packets = "GET /v1/packets"
  case frames = "GET /v1/frames"

  case resolve = "GET /v1/resolve"
  case send = "POST /v1/send"
  case react = "POST /v1/react"
  case outgoing = "GET /v1/outgoing"
  case attempts = "GET /v1/outgoing/attempts"
  case retryOutgoing = "POST /v1/outgoing/retry"
  case cancelOutgoing = "POST /v1/outgoing/cancel"
  case adoptOutgoing = "POST /v1/outgoing/adopt"

  case addContact = "POST /v1/contacts/add"
  case removeContact = "POST /v1/contacts/remove"
  case exportContact = "GET /v1/contacts/export"
  case importContact = "POST /v1/contacts/import"
  case shareContact = "POST /v1/contacts/share"
  case contactPath = "POST /v1/contacts/path"
  case putContact = "POST /v1/contacts/put"
  case addChannel = "POST /v1/channels/add"
  case removeChannel = "POST /v1/channels/remove"
  case setRegion = "POST /v1/channels/region"
  case putChannel = "POST /v1/channels/put"

  case logIn = "POST /v1/node/login"
  case logOut = "POST /v1/node/logout"
  case nodeStatus = "POST /v1/node/status"
  case telemetry = "POST /v1/node/telemetry"
  case neighbours = "POST /v1/node/neighbours"
  case trace = "POST /v1/node/trace"
  case command = "POST /v1/node/cli"

  case radio = "GET /v1/radio"
  case setRadio = "POST /v1/radio/set"
  case advert = "POST /v1/radio/advert"
  case presets = "GET /v1/radio/presets"
  case radioBackup = "GET /v1/radio/backup"
  case privateKey = "POST /v1/radio/private-key"
  case scan = "GET /v1/radio/scan"
  case pair = "POST /v1/radio/pair"
  case forget = "POST /v1/radio/forget"

  case documents = "GET /v1/documents"
  case editDocument = "POST /v1/documents"
  case nodeAlias = "POST /v1/node/alias"
  case nodeNote = "POST /v1/node/note"
  case nodeTags = "POST /v1/node/tags"
  case relayChannel = "POST /v1/channels/relay"

  case outbox = "GET /v1/outbox"
  case retryOutbox = "POST /v1/outbox/retry"
  case dropOutbox = "POST /v1/outbox/drop"
  case resumeOutbox = "POST /v1/outbox/resume"
  case pauseUpstream = "POST /v1/upstreams/pause"
  case resumeUpstream = "POST /v1/upstreams/resume"
  case testUpstream = "POST /v1/upstreams/test"
  case addUpstream = "POST /v1/upstreams/add"
  case removeUpstream = "POST /v1/upstreams/remove"
  case forgetUpstream = "POST /v1/upstreams/forget"

  case alerts = "GET /v1/alerts"
  case alertRules = "GET /v1/alerts/rules"
  case acknowledgeAlert = "POST /v1/alerts/acknowledge"

  case setWebPassword = "POST /v1/web/password"

  case doctor = "GET /v1/doctor"
  case bluetoothDoctor = "GET /v1/doctor/bluetooth"
  case report = "GET /v1/report"
  case backup = "GET /v1/backup"

  init(_ request: HTTPRequest) throws(Rejection) {
    let name = "\(request.method) \(request.path)"
    guard let route = Route(rawValue: name) else {
      let isKnown = Self.allCases.contains { $0.path.isExactly(request.path) }
      throw isKnown ? Rejection(status: 405, message: name) : Rejection(status: 404, message: "not found: \(name)")
    }
    self = route
  }

  private var path: String { rawValue.pieces(at: " ", most: 2).last ?? "" }
}
