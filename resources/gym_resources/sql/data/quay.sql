-- The quay of an invented harbour town: ships, their owners, calls and the cargo they landed.
CREATE TABLE owner (owner_id INTEGER PRIMARY KEY, name TEXT, town TEXT);
INSERT INTO owner VALUES (1, 'Halvorsen & Søn', 'Brimvik'), (2, 'Ottoline Reed', 'Sallow'), (3, 'Kelp Brothers', 'Brimvik'), (4, 'Marit Lund', 'Torsund');

CREATE TABLE ship (ship_id INTEGER PRIMARY KEY, name TEXT, owner_id INTEGER REFERENCES owner, built INTEGER, tonnage REAL);
INSERT INTO ship VALUES (1, 'Alke', 1, 1987, 412.5), (2, 'Gannet', 1, 2004, 980.0), (3, 'Patience', 2, 1969, 96.25), (4, 'Dulse', 3, 1994, 305.0), (5, 'Carrageen', 3, 2011, 610.75), (6, 'Ternen', 4, 2019, 1240.0), (7, 'Old Kate', 2, 1958, NULL);

CREATE TABLE visit (visit_id INTEGER PRIMARY KEY, ship_id INTEGER REFERENCES ship, arrived TEXT, departed TEXT, fee REAL);
INSERT INTO visit VALUES
  (1, 1, '2023-01-04', '2023-01-06', 120.5), (2, 2, '2023-01-09', '2023-01-10', 210.0), (3, 4, '2023-02-02', '2023-02-02', 88.0),
  (4, 5, '2023-02-14', '2023-02-18', 305.25), (5, 1, '2023-03-01', '2023-03-02', 110.0), (6, 6, '2023-03-20', '2023-03-27', 640.0),
  (7, 3, '2023-04-11', NULL, 35.0), (8, 2, '2023-05-05', '2023-05-09', 330.0), (9, 6, '2023-06-18', '2023-06-20', 275.0),
  (10, 4, '2023-07-07', '2023-07-08', 92.0), (11, 5, '2023-08-30', '2023-09-03', 310.75), (12, 1, '2023-10-12', '2023-10-15', 131.0);

CREATE TABLE cargo (visit_id INTEGER REFERENCES visit, kind TEXT, tons REAL);
INSERT INTO cargo VALUES
  (1, 'herring', 40.5), (1, 'ice', 12.0), (2, 'timber', 310.0), (3, 'kelp', 55.0), (4, 'kelp', 140.25), (4, 'salt', 60.0),
  (5, 'herring', 38.0), (6, 'timber', 700.0), (6, 'salt', 90.0), (8, 'timber', 295.5), (9, 'herring', 120.0), (10, 'kelp', 61.0),
  (11, 'kelp', 150.0), (12, 'herring', 44.5), (12, 'salt', 8.0);
