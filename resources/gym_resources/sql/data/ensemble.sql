-- A season of an invented chamber orchestra: players, works, concerts and who played in them.
CREATE TABLE player (player_id INTEGER PRIMARY KEY, name TEXT, instrument TEXT, joined INTEGER);
INSERT INTO player VALUES (1, 'Ines Falk', 'violin', 2009), (2, 'Bo Tran', 'violin', 2015), (3, 'Ruth Osei', 'viola', 2011), (4, 'Jan Hoek', 'cello', 2009), (5, 'Lia Costa', 'flute', 2020), (6, 'Sam Idle', 'horn', 2018);

CREATE TABLE work (work_id INTEGER PRIMARY KEY, title TEXT, composer TEXT, minutes INTEGER);
INSERT INTO work VALUES (1, 'Nocturne for Strings', 'E. Marlow', 9), (2, 'Harbour Suite', 'T. Quill', 24), (3, 'Horn Quintet', 'T. Quill', 17), (4, 'Winter Bird', 'A. Sato', 12), (5, 'Second Quartet', 'E. Marlow', 28);

CREATE TABLE concert (concert_id INTEGER PRIMARY KEY, held TEXT, hall TEXT, tickets INTEGER, price REAL);
INSERT INTO concert VALUES (1, '2022-09-17', 'Granary', 180, 18.0), (2, '2022-11-05', 'Old Mint', 95, 24.0), (3, '2023-01-14', 'Granary', 210, 18.0), (4, '2023-03-25', 'Glass Hall', 340, 30.0), (5, '2023-05-20', 'Old Mint', 88, 24.0);

CREATE TABLE programme (concert_id INTEGER REFERENCES concert, position INTEGER, work_id INTEGER REFERENCES work);
INSERT INTO programme VALUES (1, 1, 1), (1, 2, 5), (2, 1, 4), (2, 2, 3), (3, 1, 2), (3, 2, 1), (3, 3, 4), (4, 1, 5), (4, 2, 2), (5, 1, 1), (5, 2, 3);

CREATE TABLE appearance (concert_id INTEGER REFERENCES concert, player_id INTEGER REFERENCES player);
INSERT INTO appearance VALUES (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 3), (2, 5), (2, 6), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (4, 1), (4, 2), (4, 3), (4, 4), (4, 5), (4, 6), (5, 2), (5, 3), (5, 4), (5, 6);
