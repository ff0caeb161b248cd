// SPDX-License-Identifier: MIT

import ControlShapes

/// The output of `--json` by command. Man pages, docs/json.md and the tests are made from it. A change to a listed field raises
/// `Shapes.version`.
enum Shapes {
  static let version = 1

  /// The form of the output: one value, or rows, one a line.
  enum Form: String { case object, rows }

  struct Output {
    let form: Form
    let shape: any Sendable
    var name: String { ShapeReference.name(shape) }
  }

  private static func object(_ shape: any Sendable) -> Output { Output(form: .object, shape: shape) }
  private static func rows(_ shape: any Sendable) -> Output { Output(form: .rows, shape: shape) }

  /// By command. Commands that are missing have no JSON output of their own.
  static let commands: [String: Output] = [
    "overview": object(Shape.Status()), "status": object(Shape.Status()), "send": object(Shape.Accepted()),
    "react": object(Shape.Accepted()), "sent list": rows(Shape.Outgoing()), "sent adopt": object(Shape.Adopted()),
    "sent cancel": object(Shape.Adopted()), "retry": object(Shape.Outgoing()), "cancel": object(Shape.Outgoing()),
    "messages": rows(Shape.Message()), "search": rows(Shape.Message()), "contacts": rows(Shape.Contact()),
    "contact add": object(Shape.Ok()), "contact remove": object(Shape.Ok()), "contact export": object(Shape.Link()),
    "contact import": object(Shape.Key()), "contact share": object(Shape.Ok()), "contact path": object(Shape.Path()),
    "channels": rows(Shape.Channel()), "channel add": object(Shape.Channel()),
    "channel remove": object(Shape.Channel()), "channel region": object(Shape.Channel()),
    "channel relay": object(Shape.Document()), "room login": object(Shape.Login()),
    "room post": object(Shape.Accepted()), "room read": rows(Shape.Message()), "node login": object(Shape.Login()),
    "node logout": object(Shape.Ok()), "node status": object(Shape.NodeStatus()),
    "node telemetry": object(Shape.Telemetry()), "node neighbours": object(Shape.Neighbours()),
    "node trace": object(Shape.Trace()), "node cli": object(Shape.Reply()), "node readings": rows(Shape.Reading()),
    "node alias": object(Shape.Document()), "node note": object(Shape.Document()), "node tag": object(Shape.Document()),
    "journal": rows(Shape.Event()), "upstream pending": object(Shape.Outbox()), "upstream dead": object(Shape.Outbox()),
    "upstream retry": object(Shape.Retried()), "upstream drop": object(Shape.Dropped()),
    "upstream list": object(Shape.Outbox()), "upstream add": object(Shape.Added()),
    "upstream remove": object(Shape.Ok()), "upstream forget": object(Shape.Ok()),
    "upstream pause": object(Shape.Upstream()), "upstream resume": object(Shape.Upstream()),
    "upstream test": object(Shape.Ok()), "documents list": object(Shape.Documents()),
    "documents set": object(Shape.Document()), "documents delete": object(Shape.Document()),
    "sync": object(Shape.Sync()), "radio info": object(Shape.Radio()), "radio set": object(Shape.Radio()),
    "radio advert": object(Shape.Advertised()), "radio presets": object(Shape.Presets()),
    "radio backup": object(Shape.BackedUp()), "radio restore": object(Shape.Restored()),
    "radio probe": object(Shape.Probed()), "radio scan": object(Shape.Scan()), "radio pair": object(Shape.Paired()),
    "radio list": rows(Shape.KnownRadio()), "radio forget": object(Shape.Forgotten()),
    "doctor all": object(Shape.Findings()), "doctor bluetooth": object(Shape.Findings()), "map": object(Shape.Map()),
    "chart signal": object(Shape.Chart()), "chart battery": object(Shape.Chart()),
    "chart traffic": object(Shape.Chart()), "report": object(Shape.Report()), "capture": object(Shape.Captured()),
    "backup": object(Shape.Bytes()), "alerts list": object(Shape.Alerts()), "alerts acknowledge": object(Shape.Alert()),
    "alerts rules": object(Shape.AlertRules()),
  ]

  /// Shapes that occur in other shapes only.
  static let parts: [any Sendable] = [
    Shape.Advert(), Shape.AlertRule(), Shape.Allowance(), Shape.DeadLetter(), Shape.Finding(), Shape.FoundRadio(),
    Shape.Hop(), Shape.Lane(), Shape.Lanes(), Shape.LeftOut(), Shape.LinkState(), Shape.Messaging(), Shape.Neighbour(),
    Shape.Override(), Shape.Point(), Shape.Power(), Shape.Preset(), Shape.ProbedDevice(), Shape.Proxy(),
    Shape.Reaction(), Shape.Refused(), Shape.RemovedUpstream(), Shape.Sensor(), Shape.Series(), Shape.Setting(),
    Shape.Standing(), Shape.Store(), Shape.SyncState(), Shape.Web(),
  ]
}
